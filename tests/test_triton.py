"""The Triton kernels in Triton's interpreter, and the behaviour where they cannot run."""

import sys

import pytest
import torch
from conftest import ROOT, run

from fairseq_rela.kernels import gpu


@pytest.mark.slow
def test_kernels_equal_float64():
    """Runs in its own process, as Triton reads TRITON_INTERPRET when a kernel is defined."""
    # interpreters before 3.7 do not work with the newest numpy
    pytest.importorskip("triton", minversion="3.7", reason="Triton 3.7 is not installed: pip install triton==3.7.1")
    checks = ROOT / "tests" / "triton_checks.py"
    command = (sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", checks)
    result = run(*command, cwd=ROOT, env={"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"})
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout and "skipped" not in result.stdout


def test_the_reason_for_not_using_triton_is_given():
    assert "not float64" in gpu.unavailable(torch.device("cuda"), torch.float64)
    assert "larger than 256" in gpu.unavailable(torch.device("cuda"), head_dim=257)
    if not torch.cuda.is_available():
        assert "sees no NVIDIA GPU" in gpu.unavailable(torch.device("cuda"))
    assert "an NVIDIA GPU, and the device is cpu" in gpu.unavailable(torch.device("cpu"))


@pytest.mark.parametrize("version, reason", [(None, "not installed"), ("2.1.0", "older than 3.5"), ("3.10.1", None)])
def test_on_a_gpu_the_version_of_triton_decides(version, reason, monkeypatch):
    module = None if version is None else type(sys)("triton")
    if module is not None:
        module.__version__ = version
    monkeypatch.setitem(sys.modules, "triton", module)  # None makes the import fail
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    gpu._missing.cache_clear()
    try:
        found = gpu.unavailable(torch.device("cuda"))
        assert found is None if reason is None else reason in found
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
        gpu._missing.cache_clear()
        assert gpu.unavailable(torch.device("cuda")) == "Tesla T4 is older than Ampere"
    finally:
        gpu._missing.cache_clear()
