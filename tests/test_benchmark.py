"""The benchmark: order and statistics of the timing, the memory meter, the candidates, the record and figures."""

import json
import sys

import pytest
import torch
from conftest import ROOT, run, run_rela

from fairseq_rela.benchmark import core, flops, models, timing
from fairseq_rela.benchmark.core import Cell
from fairseq_rela.benchmark.memory import peak_bytes, saved_bytes
from fairseq_rela.benchmark.plan import Plan, make_plan
from fairseq_rela.benchmark.run import PARTS
from fairseq_rela.benchmark.run import run as run_benchmark
from fairseq_rela.benchmark.shown import describe_result
from fairseq_rela.benchmark.timing import Timing
from fairseq_rela.errors import InputError

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(int(torch.__version__.split(".")[0]) < 2, reason="rela bench needs torch 2")


class Clock:
    """A clock that only the candidates advance."""

    def __init__(self):
        self.now = 0.0
        self.order = []

    def candidate(self, name, seconds):
        def run():
            self.order.append(name)
            self.now += seconds

        return run

    def __call__(self):
        return self.now


def test_candidates_take_turns_and_each_round_begins_with_the_next():
    clock = Clock()
    runs = {name: clock.candidate(name, seconds) for name, seconds in (("a", 1.0), ("b", 2.0), ("c", 0.5))}
    times, skipped = Timing(100.0, rounds=(2, 4), clock=clock).interleave(runs)
    assert clock.order == [*"abc", *"abc", *"bca", *"cab", *"abc"]
    assert times == {"a": [1.0] * 4, "b": [2.0] * 4, "c": [0.5] * 4} and not skipped


def test_rounds_end_with_the_budget_but_not_before_the_least_number():
    for budget, rounds in ((0.6, 3), (7.0, 4), (1000.0, 9)):
        clock = Clock()
        runs = {name: clock.candidate(name, 1.0 if name == "a" else 0.2) for name in "ab"}
        times, _ = Timing(budget, rounds=(3, 9), clock=clock).interleave(runs)
        # a round takes 1.2 s; a new one begins only within the budget
        assert len(times["a"]) == len(times["b"]) == (rounds if budget != 7.0 else 6)


def test_slow_candidates_are_left_out_but_not_the_baselines():
    clock = Clock()
    seconds = {"base": 50.0, "like": 99.0, "slow": 101.0, "fast": 1.0}
    runs = {name: clock.candidate(name, s) for name, s in seconds.items()}
    times, skipped = Timing(21.0, rounds=(3, 9), clock=clock).interleave(runs)
    assert set(times) == {"base", "like", "fast"} and len(times["base"]) == 3
    assert skipped == {"slow": "a run takes 101.0 s, too long for 3 in 21 s"}


@pytest.mark.parametrize(
    "seconds, left",
    [
        ({"base": 1.0, "slow": 6.0, "slower": 7.0}, {"base", "slow", "slower"}),  # three rounds in twice the 21 s
        ({"base": 1.0, "slow": 6.0, "slower": 7.1}, {"base", "slow"}),
        ({"base": 1.0, "slow": 13.1, "slower": 7.0}, {"base", "slower"}),
        ({"base": 1.0, "slow": 30.0, "slower": 31.0}, {"base"}),
    ],
)
def test_the_slowest_are_left_out_until_the_others_fit(seconds, left):
    clock = Clock()
    runs = {name: clock.candidate(name, s) for name, s in seconds.items()}
    times, skipped = Timing(21.0, rounds=(3, 9), clock=clock).interleave(runs)
    assert set(times) == left and set(skipped) == set(seconds) - left


def test_a_slow_first_run_is_repeated():
    """The first run may include compilation."""
    clock, first = Clock(), [100.0]

    def compiles():
        clock.now += first.pop() if first else 1.0

    runs = {"base": clock.candidate("base", 1.0), "compiles": compiles}
    times, skipped = Timing(21.0, rounds=(3, 3), clock=clock).interleave(runs)
    assert times["compiles"] == [1.0] * 3 and not skipped


def test_medians_quartiles_and_ratios_are_computed_by_round():
    assert timing.summary([4.0, 1.0, 3.0, 2.0, 5.0]) == {"median": 3.0, "q1": 2.0, "q3": 4.0, "rounds": 5}
    assert timing.summary([7.0]) == {"median": 7.0, "q1": 7.0, "q3": 7.0, "rounds": 1}
    # the machine was ten times slower in the second round, which does not change the ratio
    ratios = timing.compare({"base": [1.0, 10.0, 2.0], "other": [2.0, 20.0, 1.0]}, "base")
    assert ratios["base"] == {"median": 1.0, "q1": 1.0, "q3": 1.0, "rounds": 3}
    assert ratios["other"] == {"median": 2.0, "q1": 1.25, "q3": 2.0, "rounds": 3}


def test_flops_equal_those_of_table_4():
    rows = {row["length"]: row for row in flops.table((100, 1000))}
    assert (rows[100]["softmax"], rows[100]["rela_g"]) == (239_200, 592_100)
    assert round(rows[1000]["softmax"] / 1e6, 2) == 23.99 and round(rows[1000]["rela_g"] / 1e6, 2) == 13.12


def test_the_memory_meter_counts_live_tensors():
    x = torch.randn(100, 100, requires_grad=True)
    size = x.numel() * 4
    assert saved_bytes(lambda: x.exp().sum()) == size  # its result
    assert saved_bytes(lambda: (x * x).sum()) == size  # x, once
    assert saved_bytes(lambda: x + 1) == 0
    assert saved_bytes(lambda: (x * x.exp()).sum(), [x]) == size  # the exponential, not x

    def two_alive():
        y = x.detach() + 1
        z = y + 1
        del y
        z.add_(1)
        for _ in range(5):
            z = z + 1

    assert peak_bytes(two_alive, CPU) == 2 * size

    def with_gradient():
        x.exp().backward(x.detach())

    assert 2 * size <= peak_bytes(with_gradient, CPU) <= 3 * size


CELLS = [
    Cell(8, 32, heads=2, dim=16),
    Cell(8, 32, heads=2, dim=16, causal=True),
    Cell(8, 32, heads=2, dim=16, padded=True),
    Cell(8, 32, heads=2, dim=16, causal=True, padded=True),
]


@pytest.mark.parametrize("cell", CELLS)
def test_candidates_compute_the_variant_in_their_name(cell):
    """Softmax by brute force, ReLA-g on both paths; no weight is on padding or the future."""
    x = core.make_inputs(cell, CPU)
    found = core.candidates(cell, x)
    assert set(found) == {"softmax", "sdpa", "rela_g_plain", "rela_g", "sparsemax", "entmax15"}
    want = torch.zeros(cell.length, cell.batch, cell.dim)
    for b in range(cell.batch):
        for h in range(2):
            part = slice(8 * h, 8 * h + 8)
            for t in range(cell.length):
                keys = [
                    s
                    for s in range(cell.length)
                    if not (cell.causal and s > t) and not (cell.padded and bool(x.padding[b, s]))
                ]
                scores = torch.stack([x.q[t, b, part] @ x.k[s, b, part] / 8**0.5 for s in keys])
                want[t, b, part] = torch.softmax(scores, 0) @ x.v[keys, b, part]
    for name in ("softmax", "sdpa"):
        torch.testing.assert_close(found[name](), want)
    torch.testing.assert_close(found["rela_g"](), found["rela_g_plain"]())
    assert max(core.check(cell, CPU).values()) < 1e-5
    for name, function in found.items():
        output = function()
        grad = torch.autograd.grad(output, x.v, x.grad)[0]
        assert not cell.padded or not grad[x.padding.t()].any(), name


def test_candidates_with_wrong_results_are_not_timed(monkeypatch):
    real = core.candidates
    monkeypatch.setattr(
        core, "candidates", lambda c, x: {**real(c, x), "rela_g": lambda: 1.01 * real(c, x)["rela_g"]()}
    )
    with pytest.raises(InputError, match="rela_g and rela_g_plain differ by 0.01"):
        core.check(CELLS[0], CPU)


def test_rela_g_needs_less_memory_than_softmax_for_long_inputs():
    """For short inputs it keeps as much as softmax, and the input of its norm."""
    cell = Cell(1024, 1024, heads=8, dim=32, dropout=0.1)
    result = core.measure(cell, CPU, Timing(0.01, (1, 1)), 10.0 * cell.score_bytes)  # too little for those that sort
    saved = result["saved_bytes"]
    assert saved["rela_g"] < saved["rela_g_plain"] and saved["rela_g"] < saved["softmax"]
    assert 0 < saved["rela_g"] <= result["peak_bytes"]["rela_g"] + 3 * 1024 * 32 * 4


def test_candidates_without_enough_memory_are_left_out():
    result = core.measure(CELLS[0], CPU, Timing(1.0, (1, 1)), memory_limit=100.0)
    for part in result["passes"].values():
        assert set(part["seconds"]) == {"sdpa", "rela_g"} and "its scores take" in part["skipped"]["softmax"]
    assert result["baseline"] == "sdpa"


def test_the_estimated_memory_bounds_the_measured_memory():
    """Long inputs have stopped a benchmark because memory was exhausted."""
    cell = Cell(256, 256, heads=8, dim=16, dropout=0.1)
    peaks = core.measure(cell, CPU, Timing(20.0, (1, 1)), 1e12)["peak_bytes"]
    copies = {name: peaks[name] / cell.score_bytes for name in core._COPIES}
    assert all(core._COPIES[name] / 2 < copies[name] <= core._COPIES[name] for name in copies), copies
    limit = 10.0 * cell.score_bytes
    assert set(core.too_large(cell, limit)) == {"sparsemax", "entmax15"}
    result = core.measure(cell, CPU, Timing(20.0, (1, 1)), limit)
    assert set(result["passes"]["forward"]["seconds"]) == {"softmax", "sdpa", "rela_g_plain", "rela_g"}


def test_batches_are_padded_like_those_of_fairseq():
    source, lengths, previous, target = models.make_batch(50, 400, 20, CPU)
    assert source.shape == target.shape == previous.shape == (20, 20)
    for row in range(20):
        n = int(lengths[row])
        assert (source[row, : 20 - n] == 1).all() and (source[row, 20 - n : -1] > 3).all() and source[row, -1] == 2
        m = int((target[row] != 1).sum())
        assert target[row, m - 1] == 2 and previous[row, 0] == 2 and (previous[row, 1:m] == target[row, : m - 1]).all()
        assert 18 <= n <= 20 and 18 <= m <= 20 and (previous[row, m:] == 1).all()


def test_parameters_equal_those_of_the_paper():
    counts = models.parameters(models.Size(words=100))
    assert counts["softmax"]["without_embeddings"] == 44_138_496
    assert counts["rela_g"]["total"] - counts["softmax"]["total"] == 18_432


TINY = models.Size(layers=1, dim=16, ffn=16, heads=2, words=30)
PLAN = Plan(0.5, (1, 2), CELLS[:2], (TINY, 40, 8), (TINY, (4, 6), (1, 2)), "float32", (TINY, 8, (8,)))


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    said = []
    measured = run_benchmark(folder, PLAN, parts=[p for p in PARTS if p != "parameters"], progress=said.append)
    assert said[0] == "core 1/2: T=8" and "core 2/2: T=8, causal" in said
    written = json.loads((folder / "benchmark.json").read_text())
    assert written == json.loads(json.dumps(measured))
    return written


def check_summary(summary):
    assert set(summary) == {"median", "q1", "q3", "rounds"}
    assert 0 < summary["q1"] <= summary["median"] <= summary["q3"] and summary["rounds"] >= 1


def test_the_record_holds_every_measurement(result):
    assert set(result["versions"]) >= {"python", "torch", "fairseq_rela", "entmax"}
    assert set(result["device"]) == {"type", "name", "cores", "threads"} and result["date"] and result["command"]
    assert [c["causal"] for c in result["core"]] == [False, True]
    for cell in result["core"]:
        assert set(cell["saved_bytes"]) == set(cell["passes"]["forward_backward"]["seconds"])
        for part in cell["passes"].values():
            assert set(part["seconds"]) | set(part["skipped"]) == {
                *("softmax", "sdpa", "rela_g_plain", "rela_g", "sparsemax", "entmax15")
            }
            for group in ("seconds", "ratio", "ratio_to_sdpa"):
                for summary in part[group].values():
                    check_summary(summary)
            assert part["ratio"]["softmax"]["median"] == part["ratio_to_sdpa"]["sdpa"]["median"] == 1.0
    assert result["training"]["baseline"] == "softmax" and result["training"]["ratio"]["softmax"]["median"] == 1.0
    assert [(c["length"], c["batch"]) for c in result["decoding"]] == [(4, 1), (6, 1), (4, 2), (6, 2)]
    for cell in (result["training"], *result["decoding"]):
        for summary in (*cell["seconds"].values(), *cell["ratio"].values()):
            check_summary(summary)
    shown = describe_result(result)
    assert "core, T=8, causal: softmax 1.00 (1.00-1.00)" in shown and "decoding, T=6, batch 2" in shown


def test_figures_are_drawn_from_the_record(result, tmp_path):
    pytest.importorskip("matplotlib")
    from fairseq_rela.benchmark.figures import draw

    drawn = draw(result, tmp_path)
    assert [path.name for path in drawn] == ["core.png", "memory.png", "decoding.png", "flops.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000 for path in drawn)
    assert [path.name for path in draw({"flops": result["flops"]}, tmp_path)] == ["flops.png"]


def test_language_models_by_the_length_of_contexts(tmp_path):
    """The figure, the lines of the terminal, and a peak that grows with the tokens of an update."""
    from fairseq_rela.benchmark.models import Size

    plan = PLAN._replace(seconds=0.1, rounds=(1, 2), lm=(Size(1, 16, 16, 2, 30), 16, (8, 16, 64)))
    result = run_benchmark(tmp_path, plan, parts=["lm"], progress=lambda line: None)
    assert [(cell["length"], cell["batch"]) for cell in result["lm"]] == [(8, 2), (16, 1), (64, 1)]
    for cell in result["lm"]:
        assert set(cell["seconds"]) | set(cell["skipped"]) == {"softmax", "rela_g"}
        check_summary(cell["seconds"]["softmax"])
    peaks = [cell["peak_bytes"]["softmax"] for cell in result["lm"]]
    assert peaks[2] > 64 * 30 * 4 and peaks[2] > 2 * peaks[1] > 0  # at least the logits in float32
    assert "language model, T=64, batch 1: softmax 1.00" in describe_result(result)
    pytest.importorskip("matplotlib")
    from fairseq_rela.benchmark.figures import draw

    assert [path.name for path in draw(result, tmp_path)] == ["lm.png"]


def test_any_variant_is_timed_and_drawn(tmp_path):
    names = ["softpick", "entmax_alpha"]
    plan = PLAN._replace(seconds=1000.0)  # a slow machine leaves no variant out
    parts = ("training", "decoding")
    result = run_benchmark(tmp_path, plan, parts=parts, progress=lambda line: None, attention=names)
    for cell in (result["training"], *result["decoding"]):
        assert set(cell["seconds"]) == {"softmax", "softpick", "entmax_alpha"}
    pytest.importorskip("matplotlib")
    from fairseq_rela.report.figures import speed_figure
    from fairseq_rela.report.speed import speeds_of

    speeds = speeds_of(result)
    assert list(speeds.decoding[0].speeds) == ["softmax", "softpick", "entmax_alpha"]
    assert speed_figure(speeds).draw()
    with pytest.raises(InputError, match="--attention softpik: no such variant; choose from"):
        models.choose_variants(["softpik"])


def test_hypotheses_have_the_requested_length():
    """Otherwise the variants would need different numbers of steps."""
    lengths = []
    real = models.SequenceGenerator.generate

    def generate(self, *args, **kwargs):
        found = real(self, *args, **kwargs)
        lengths.extend(len(h[0]["tokens"]) for h in found)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models.SequenceGenerator, "generate", generate)
        models.decoding(TINY, (5,), 2, 4, CPU, "float32", Timing(0.1, (1, 1)))
    assert lengths and set(lengths) == {6}  # and the end of the sentence


def test_plans_match_their_devices():
    for device in ("cpu", "cuda"):
        for quick in (True, False):
            plan = make_plan(device, quick)
            assert {c.dropout for c in plan.cells} == {0.0, 0.1} and any(c.causal and c.padded for c in plan.cells)
            assert plan.cells[0].length == 16 and len({c.tokens for c in plan.cells if c.length <= 4096}) == 1
    assert make_plan("cpu", False).cells[9].length == 8192 and make_plan("cuda", False).seconds <= 300


def test_lengths_of_the_core_can_be_chosen():
    usual, chosen = make_plan("cpu", True), make_plan("cpu", True, [128, 8192])
    assert [(c.length, c.tokens, c.causal, c.padded, c.dropout) for c in chosen.cells] == [
        *((128, 4096, False, False, 0.0), (8192, 8192, False, False, 0.0), (128, 4096, True, False, 0.0)),
        *((128, 4096, False, True, 0.0), (128, 4096, False, False, 0.1), (128, 4096, True, True, 0.1)),
    ]
    assert chosen.lm == (*usual.lm[:2], [128, 8192])
    assert len(chosen.op) == 10 and {cell.length for cell in chosen.op} == {128, 8192}
    assert chosen._replace(cells=usual.cells, lm=usual.lm, op=usual.op) == usual


@pytest.mark.slow
def test_wrong_options_are_refused(tmp_path):
    for arguments, message in (
        (["--parts", "cores"], "--parts cores: choose from core, training"),
        (["--lengths", "64,0"], "--lengths 0: give a number of at least 1"),
        (["--parts", "flops", "--output", __file__], "cannot be made"),
        *([] if torch.cuda.is_available() else [(["--device", "cuda"], "this PyTorch sees no GPU")]),
    ):
        result = run_rela("bench", "--quick", *arguments, cwd=tmp_path)
        assert result.returncode == 2 and message in result.stderr and "Traceback" not in result.stderr


@pytest.mark.slow
def test_the_script_runs_the_verb_bench(tmp_path):
    result = run(sys.executable, ROOT / "scripts" / "benchmark.py", "--parts", "flops", "--no-figures", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    record = json.loads((tmp_path / "benchmarks" / "cpu" / "benchmark.json").read_text())
    assert record["command"] == "rela bench --parts flops --no-figures" and record["flops"][2]["softmax"] == 239_200
    assert "FLOPs, T=100: softmax 239,200, rela_g 592,100" in result.stdout


def test_an_interrupted_run_leaves_what_it_measured(tmp_path, monkeypatch):
    def measure(cell, *arguments):
        if cell.length == 16:
            raise KeyboardInterrupt
        return {"length": cell.length}

    monkeypatch.setattr(core, "measure", measure)
    plan = make_plan("cpu", True)._replace(cells=[Cell(length, 64) for length in (4, 8, 16, 32)])
    with pytest.raises(KeyboardInterrupt):
        run_benchmark(tmp_path, plan, parts=("core",), progress=lambda line: None)
    record = json.loads((tmp_path / "benchmark.json").read_text())
    assert [cell["length"] for cell in record["core"]] == [4, 8] and "load_after" not in record
    with pytest.raises(InputError, match="benchmark.json has the part core, which would be lost; give another --name"):
        run_benchmark(tmp_path, plan, parts=("flops",), progress=lambda line: None)
    assert json.loads((tmp_path / "benchmark.json").read_text()) == record
