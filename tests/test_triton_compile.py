"""Every variant of the Triton kernels, compiled for GPUs that are not installed, and the resources they use.

The bounds are bytes of stack per thread, which hold spilt registers, and bytes of shared memory per block.
"""

import itertools
import os
import subprocess
from pathlib import Path

import pytest
import torch

if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("TRITON_INTERPRET=1: nothing is compiled", allow_module_level=True)
triton = pytest.importorskip("triton", minversion="3.5", reason="Triton is not installed: pip install triton==3.7.1")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402
from triton.runtime import driver  # noqa: E402

from fairseq_rela.kernels import triton_attention, triton_norm  # noqa: E402

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
KERNELS = {name: getattr(triton_attention, f"_{name}") for name in triton_attention.KERNELS}
POINTERS = {torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float32: "*fp32"}
# bytes per thread: 0 to 56 were measured, of 255 registers = 1,020 bytes
LARGEST_STACK = 64
# bytes per block of an A100 and an H100; the other GPUs of sm_8x have 101,376
SHARED_MEMORY = {80: 101376, 90: 232448}
DIVISIBLE = [["tt.divisibility", 16]]


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def source(kernel, pointers, constants):
    """Return the source that the just-in-time compiler makes for a launch.

    Args:
        pointers: types of the tensors; other arguments that are not constants are numbers: rows of outputs and
            inputs lie multiples of 16 numbers apart, as they do for d = 512.
    """
    signature, attributes = {}, {}
    for index, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
        elif name in pointers:
            signature[name], attributes[(index,)] = pointers[name], DIVISIBLE
        elif name in ("scale", "root_eps"):
            signature[name] = "fp32"
        elif name == "seed":
            signature[name] = "i64"
        else:
            signature[name] = "i32"
            if not kernel.params[index].do_not_specialize:
                attributes[(index,)] = DIVISIBLE
    return ASTSource(kernel, signature, constants, attributes)


def compile_kernel(kernel_source, arch, warps, stages, tmp_path):
    """Return registers and bytes of stack per thread, and bytes of shared memory per block."""
    options = {"num_warps": warps, "num_stages": stages}
    compiled = triton.compile(kernel_source, target=GPUTarget("cuda", arch, 32), options=options)
    binary = tmp_path / "kernel.cubin"
    binary.write_bytes(compiled.asm["cubin"])
    usage = subprocess.check_output([CUOBJDUMP, "-res-usage", binary], encoding="utf-8")
    numbers = dict(part.split(":") for part in usage.split() if part.count(":") == 1)
    return int(numbers["REG"]), int(numbers["STACK"]), compiled.metadata.shared


def attention_source(
    name, dtype, tiles, head_dim=64, causal=True, padded=True, dropout=True, precision="ieee", shifted=True
):
    constants = dict(
        NUM_HEADS=8,
        HEAD_DIM=head_dim,
        BLOCK_D=triton_attention.block_of(head_dim),
        BLOCK_M=tiles.queries,
        BLOCK_N=tiles.keys,
        CAUSAL=causal,
        PADDED=padded,
        SHIFTED=shifted,
        DROPOUT=dropout,
        PRECISION=precision,
        **({"SUMS": shifted} if name == "grad_q" else {}),
        **{f"{tensor}_c": 1 for tensor in ("q", "k", "v", *(() if name == "context" else ("grad",)))},
    )
    half = POINTERS[dtype]
    pointers = dict(q=half, k=half, v=half, grad="*fp32", mask="*u1", out_k=half, out_v=half)
    pointers.update(theta="*fp32", sums="*fp32")
    pointers["out"] = "*fp32" if name == "context" else half
    if not padded:
        constants["mask"] = None
    if not shifted:
        constants.update({"theta": None, "sums": None} if name == "grad_q" else {"theta": None})
    return source(KERNELS[name], pointers, constants)


def check_attention(name, arch, dtype, tmp_path, head_dim=64, longest=256, **options):
    block_d = triton_attention.block_of(head_dim)
    tiles = triton_attention.default_tiles(name, dtype, block_d, (arch // 10, arch % 10), longest)
    compiled = attention_source(name, dtype, tiles, head_dim, **options)
    registers, stack, shared = compile_kernel(compiled, arch, tiles.warps, tiles.stages, tmp_path)
    seen = f"{name} {tiles}: {registers} registers, {stack} bytes of stack, {shared} of shared memory"
    assert stack <= LARGEST_STACK and shared <= SHARED_MEMORY[arch], seen


def norm_source(kernel, dtype, size, gated):
    shape = triton_norm._shape(size)
    constants = dict({key: value for key, value in shape.items() if key != "num_warps"}, GATED=gated)
    pointers = dict(z="*fp32", gain="*fp32", gate="*fp32", y=POINTERS[dtype], partial="*fp32", grad_z="*fp32")
    pointers["grad"] = POINTERS[dtype]
    if not gated:
        constants["gate"] = None
    return source(kernel, pointers, constants)


def check_norm(kernel, arch, dtype, size, gated, tmp_path):
    compiled = norm_source(kernel, dtype, size, gated)
    registers, stack, shared = compile_kernel(compiled, arch, triton_norm._shape(size)["num_warps"], 3, tmp_path)
    assert stack == 0 and shared <= SHARED_MEMORY[arch], (registers, stack, shared)


class HopperWithoutAGPU:
    """The parts of Triton's driver that compilation uses, with the answers of a Hopper GPU."""

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


class Compiled:
    """Replaces a kernel: a launch compiles it as on a GPU, and does not run it."""

    def __init__(self, kernel):
        self.kernel, self.source = kernel, None

    def __getitem__(self, grid):
        assert all(size > 0 for size in grid)
        return lambda *args, **options: self._compile(grid, args, options)

    def _compile(self, grid, args, options):
        self.source = self.kernel.run(*args, grid=grid, warmup=True, **options).src


@pytest.mark.parametrize("everything", [True, False])
def test_a_launch_compiles_the_same_kernels_as_these_tests(everything, monkeypatch):
    """The launches come from attend and gated_rms_norm, forward and backward."""
    names = [(triton_attention, f"_{name}") for name in KERNELS]
    names += [(triton_norm, name) for name in ("_norm", "_norm_grad")]
    recorded = {}
    for module, name in names:
        recorded[name] = Compiled(getattr(module, name))
        monkeypatch.setattr(module, name, recorded[name])
        monkeypatch.setattr(module, "unavailable", lambda *_: None)
    monkeypatch.setattr(triton_norm, "_programs", lambda device: 8)
    monkeypatch.setattr(triton_attention, "_capability", lambda device: (9, 0))
    monkeypatch.setattr(driver, "_active", HopperWithoutAGPU())
    q, k, v = (torch.zeros(37, 3, 512, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    gain = torch.ones(512, requires_grad=True)
    mask = torch.zeros(3, 37, dtype=torch.bool) if everything else None
    options = dict(key_padding_mask=mask, causal=everything, dropout=0.1 * everything)
    options["threshold"] = torch.zeros(8, requires_grad=True) if everything else None
    z = triton_attention.attend(q, k, v, scale=0.125, num_heads=8, **options)
    y = triton_norm.gated_rms_norm(z, gain, gain if everything else None, 1e-8, torch.bfloat16)
    y.backward(torch.zeros_like(y))
    expected = {
        f"_{name}": attention_source(
            name,
            torch.bfloat16,
            triton_attention.default_tiles(name, torch.bfloat16, 64, (9, 0), 64),
            causal=everything,
            padded=everything,
            dropout=everything,
            shifted=everything,
        )
        for name in KERNELS
    }
    for name in ("_norm", "_norm_grad"):
        expected[name] = norm_source(getattr(triton_norm, name).kernel, torch.bfloat16, 512, everything)
    for name, wanted in expected.items():
        got = recorded[name].source
        assert got.signature == wanted.signature and got.constants == wanted.constants
        assert {key: value for key, value in got.attrs.items() if value} == wanted.attrs


@pytest.mark.parametrize("name", KERNELS)
def test_bfloat16_kernels_compile_on_hopper(name, tmp_path):
    check_attention(name, 90, torch.bfloat16, tmp_path)


def test_norm_kernels_compile_on_hopper(tmp_path):
    for kernel in (triton_norm._norm, triton_norm._norm_grad):
        check_norm(kernel, 90, torch.bfloat16, 512, True, tmp_path)


# the largest code, and each part alone: all pairs of values; float16 and bfloat16 differ only in single instructions
PARTS = [(True, True, True), (True, False, False), (False, True, False), (False, False, True)]
VARIANTS = [(dtype, *parts) for dtype in POINTERS for parts in (PARTS if dtype != torch.float16 else PARTS[:1])]


@pytest.mark.slow
@pytest.mark.parametrize("dtype, causal, padded, dropout", VARIANTS)
@pytest.mark.parametrize("name, arch", itertools.product(KERNELS, SHARED_MEMORY))
def test_every_variant_stays_within_the_bounds(name, arch, dtype, causal, padded, dropout, tmp_path):
    check_attention(name, arch, dtype, tmp_path, causal=causal, padded=padded, dropout=dropout)


@pytest.mark.slow
@pytest.mark.parametrize("head_dim, longest", [(32, 256), (80, 256), (128, 256), (256, 256), (64, 16), (64, 32)])
@pytest.mark.parametrize(
    "name, arch, dtype", itertools.product(KERNELS, SHARED_MEMORY, (torch.bfloat16, torch.float32))
)
def test_all_sizes_of_heads_and_lengths_stay_within_the_bounds(name, arch, dtype, head_dim, longest, tmp_path):
    check_attention(name, arch, dtype, tmp_path, head_dim=head_dim, longest=longest)


@pytest.mark.slow
@pytest.mark.parametrize("name, arch", itertools.product(KERNELS, SHARED_MEMORY))
def test_tf32_stays_within_the_bounds(name, arch, tmp_path):
    check_attention(name, arch, torch.float32, tmp_path, precision="tf32")


@pytest.mark.slow
@pytest.mark.parametrize("size, gated", itertools.product((96, 256, 512, 1024, 4096), (False, True)))
@pytest.mark.parametrize("arch, dtype", zip(SHARED_MEMORY, (torch.float16, torch.float32)))
def test_norm_kernels_stay_within_the_bounds(size, gated, arch, dtype, tmp_path):
    for kernel in (triton_norm._norm, triton_norm._norm_grad):
        check_norm(kernel, arch, dtype, size, gated, tmp_path)
