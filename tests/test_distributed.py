"""Several processes: the gradients of one process, on the CPU with gloo; the settings for fairseq and Slurm."""

import os
import re
import subprocess
import sys

import distributed_worker as worker
import pytest
import torch
from conftest import ROOT, load_anything, run_rela, train_arguments
from test_config import compose

from fairseq_rela import checkpoints, safe_loading
from fairseq_rela.variants import VARIANTS

USER_DIR = ROOT / "fairseq_rela"


@pytest.fixture(scope="module")
def by_two_processes(tmp_path_factory):
    """Start two processes and return the gradients and parameters that each computed for every case.

    They are forked from a process that has imported torch and fairseq, but nothing of this package.
    """
    folder = tmp_path_factory.mktemp("two processes")
    arguments = (str(USER_DIR), folder / "meeting point", folder / "result")
    torch.multiprocessing.set_forkserver_preload(["torch", "fairseq.models", "fairseq.tasks"])
    torch.multiprocessing.start_processes(worker.work, arguments, nprocs=2, start_method="forkserver")
    return [load_anything(folder / f"result.{rank}") for rank in range(2)]


def test_new_processes_import_the_plugin(by_two_processes):
    """B35: fairseq imports the plugin in each process from the folder of --user-dir."""
    for outcome in by_two_processes:
        assert outcome["plugin"] == str(USER_DIR / "__init__.py")


@pytest.mark.parametrize("variant, sites", worker.cases(VARIANTS))
def test_gradients_of_two_processes_equal_those_of_one_on_the_joined_batch(variant, sites, by_two_processes):
    """DistributedDataParallel takes the mean over the processes of the sums over their sentences."""
    model = worker.make(variant, sites)
    worker.loss(model, worker.sentences()).backward()
    wanted = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert all(gradient is not None for gradient in wanted.values())  # no parameter is unused
    (first, first_parameters), (second, second_parameters) = (o["cases"][variant, sites] for o in by_two_processes)
    assert first.keys() == second.keys() == wanted.keys()
    for name, gradient in wanted.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(2 * first[name], gradient, atol=1e-6, rtol=1e-6, msg=name)
        assert torch.equal(first_parameters[name], second_parameters[name]), name
    assert max(float(gradient.abs().max()) for gradient in wanted.values()) > 1e-3


def test_thresholds_of_two_processes_are_those_of_both_batches(by_two_processes):
    model = worker.make("rela_g", ",".join(worker.SITES), rela_sparsity_target=0.7)
    worker.observe(model, worker.sentences()[:2], worker.sentences()[2:])
    first, second = (outcome["target"] for outcome in by_two_processes)
    assert len(first) == 12 and first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name])
        whole = model.state_dict()[name] / (2 if name.endswith("observed") else 1)  # the mean over the processes
        torch.testing.assert_close(value, whole)


def fairseq_train(data, save_dir, *options):
    arguments = [*train_arguments(data, save_dir), "--max-update", 4, "--seed", 5, "--dropout", 0, *options]
    arguments += ["--disable-validation", "--max-tokens", 500, "--num-workers", 0]
    command = [sys.executable, "-W", "ignore", "-m", "fairseq_cli.train", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, encoding="utf-8"
    )


@pytest.mark.slow
def test_fairseq_train_in_two_processes_equals_one_process_with_two_batches(data, tmp_path):
    """fairseq's trainer with one batch in each of two processes, against one process that adds up two batches.

    ``--distributed-no-spawn`` avoids an assertion on the number of GPUs, which fails on the CPU.
    """
    together = ("--distributed-world-size", 2, "--distributed-no-spawn", "--distributed-backend", "gloo")
    together += ("--distributed-init-method", f"file://{tmp_path}/meeting-point", "--ddp-backend", "legacy_ddp")
    processes = [
        *(fairseq_train(data, tmp_path / "two", *together, "--distributed-rank", rank) for rank in range(2)),
        fairseq_train(data, tmp_path / "one", "--update-freq", 2),
    ]
    for process in processes:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output[-2000:]
    one, two = (safe_loading.load(tmp_path / name / "checkpoint_last.pt") for name in ("one", "two"))
    assert checkpoints.updates_of(one) == checkpoints.updates_of(two) == 4
    assert one["model"].keys() == two["model"].keys()
    for name, value in one["model"].items():
        torch.testing.assert_close(two["model"][name], value, atol=1e-6, rtol=1e-5, msg=name)


def started(monkeypatch, cfg, devices):
    """Return how many processes fairseq's launcher starts on a machine with so many GPUs, and their settings."""
    from fairseq.distributed import utils as distributed_utils
    from omegaconf import OmegaConf

    calls = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    monkeypatch.setattr(torch.multiprocessing, "spawn", lambda **options: calls.append(options))
    distributed_utils.call_main(OmegaConf.create(cfg), lambda cfg: calls.append({"nprocs": 1, "args": (None, cfg)}))
    (call,) = calls
    return call["nprocs"], call["args"][1]


@pytest.fixture
def no_job(monkeypatch):
    for name in [n for n in os.environ if n.startswith("SLURM_") or n in ("MASTER_ADDR", "WORLD_SIZE", "RANK")]:
        monkeypatch.delenv(name)


def with_defaults(cfg):
    """Return the composed configuration after fairseq has completed it at its start."""
    from fairseq.dataclass.initialize import add_defaults
    from omegaconf import OmegaConf

    cfg = OmegaConf.create(cfg)
    add_defaults(cfg)
    return OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_fairseq_starts_a_process_for_each_gpu(devices, monkeypatch, no_job):
    """With run=gpuN on a machine with N GPUs each process receives the plugin's folder for its import."""
    cfg = with_defaults(compose("wmt14_en_de", f"run=gpu{devices}"))
    number, given = started(monkeypatch, cfg, devices)
    assert number == devices
    assert given.distributed_training.distributed_world_size == devices
    assert given.common.user_dir == "x" and not given.common.cpu
    if devices > 1:
        assert given.distributed_training.distributed_init_method.startswith("tcp://localhost:")
        assert given.distributed_training.ddp_backend == "pytorch_ddp"
        assert not given.distributed_training.find_unused_parameters


def test_a_slurm_job_starts_four_processes_on_its_node(monkeypatch, no_job, tmp_path):
    """The environment is that of a job with one task on one node, as run=slurm requests it."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho node7\n")
    (tmp_path / "scontrol").chmod(0o755)
    job = dict(JOB_ID="81", JOB_NODELIST="node7", NNODES="1", NTASKS="1", NTASKS_PER_NODE="1", NODEID="0")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name, value in job.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    number, given = started(monkeypatch, with_defaults(compose("wmt14_en_de", "run=slurm")), 4)
    assert number == 4 and given.distributed_training.distributed_world_size == 4
    assert re.fullmatch(r"tcp://localhost:\d{5}", given.distributed_training.distributed_init_method)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.device_count() >= 8, reason="this machine has eight GPUs")
def test_too_few_gpus_give_one_line_and_do_not_block_the_next_run(data, tmp_path):
    arguments = ("train", "synthetic", "--data", data, "--save-dir", tmp_path / "run")
    result = run_rela(*arguments, "--override", "run=gpu8", "--override", "dataset.max_tokens=512")
    lines = result.stderr.strip().splitlines()
    assert result.returncode == 2 and len(lines) == 1, result.stderr
    assert f"world size is 8 but have {torch.cuda.device_count()} available devices" in lines[0]
    assert "world size is 8 but have" in (ROOT / "docs" / "troubleshooting.md").read_text().replace("N", "8")
    quick = ("--override", "optimization.max_update=1", "--override", "dataset.disable_validation=true")
    assert run_rela(*arguments, *quick).returncode == 0
