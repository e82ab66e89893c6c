"""The benchmark of the operator: its candidates against a loop, their memory, the record, and the figure."""

import json

import pytest
import torch

from fairseq_rela.benchmark import op
from fairseq_rela.benchmark.core import Cell
from fairseq_rela.benchmark.memory import peak_bytes
from fairseq_rela.benchmark.passes import Passes
from fairseq_rela.benchmark.plan import make_plan
from fairseq_rela.benchmark.run import run as run_benchmark
from fairseq_rela.benchmark.shown import describe_result
from fairseq_rela.benchmark.timing import Timing
from fairseq_rela.errors import InputError
from fairseq_rela.report.speed import load_speeds

CPU = torch.device("cpu")
CELL = Cell(8, 32, heads=2, dim=16)
OURS = {"sdpa", "softmax", "rela", "rela_g", "relu", "relu_compiled", "sparsemax", "entmax15"}
MASKS = [dict(), dict(causal=True), dict(padded=True), dict(causal=True, padded=True)]
needs_torch_2 = pytest.mark.skipif(int(torch.__version__.split(".")[0]) < 2, reason="rela bench needs torch 2")
pytestmark = needs_torch_2


@pytest.fixture(autouse=True)
def _without_a_compiler(monkeypatch):
    monkeypatch.setattr(op, "compiled_plain", lambda: op.plain)  # a minute of compilation otherwise


@pytest.mark.parametrize("masks", MASKS)
def test_candidates_equal_a_loop(masks):
    """By sentence, head and query; the norm of ReLA-g is over the joined heads."""
    cell = CELL._replace(**masks)
    x = op.make_inputs(cell, CPU)
    want = {name: torch.zeros(x.q.shape) for name in ("softmax", "relu")}
    for b in range(cell.batch):
        for h in range(2):
            for t in range(8):
                seen = [
                    s for s in range(8) if not (cell.causal and s > t) and not (cell.padded and bool(x.padding[b, s]))
                ]
                scores = torch.stack([x.q[b, h, t] @ x.k[b, h, s] / 8**0.5 for s in seen])
                for name, weigh in (("softmax", lambda s: s.softmax(0)), ("relu", torch.relu)):
                    want[name][b, h, t] = weigh(scores) @ x.v[b, h, seen]
    found = op.candidates(cell, x)
    assert set(found) == OURS | {"flex"}
    for names, right in ((("softmax", "sdpa"), "softmax"), (("relu", "relu_compiled", "rela"), "relu")):
        for name in names:
            torch.testing.assert_close(found[name](), want[right], msg=name)
    joined = want["relu"].permute(0, 2, 1, 3).reshape(cell.batch, 8, 16)
    normed = torch.sigmoid(x.gate * joined) * x.gain * joined / (joined.square().mean(-1, keepdim=True) + 1e-8).sqrt()
    torch.testing.assert_close(found["rela_g"](), normed.view(cell.batch, 8, 2, 8).transpose(1, 2))
    for name in ("sparsemax", "entmax15"):
        grad = torch.autograd.grad(found[name](), x.v, x.grad)[0]
        assert not cell.padded or not grad.transpose(1, 2)[x.padding].any(), name


def test_the_plain_formula_can_be_compiled(monkeypatch):
    """Traced as by torch.compile, without a break, for two lengths; the traced code runs in eager mode."""
    traced = torch.compile(op.plain, dynamic=True, fullgraph=True, backend="eager")
    monkeypatch.setattr(op, "compiled_plain", lambda: traced)
    for length in (8, 12):
        distances, failed = op.check(CELL._replace(length=length, causal=True, padded=True), CPU, {"flex": ""})
        assert distances["relu, relu_compiled"] < 1e-5 and not failed


@pytest.mark.filterwarnings("ignore")
def test_flex_attention_expresses_relu_but_has_no_gradient_on_a_cpu():
    pytest.importorskip("torch.nn.attention.flex_attention")
    cell = CELL._replace(causal=True, padded=True)
    x = op.make_inputs(cell, CPU)
    context = op.flex_relu(x.q.detach(), x.k.detach(), x.v.detach(), x.padding, True)
    torch.testing.assert_close(context, op.candidates(cell, x)["relu"]().detach(), rtol=1e-4, atol=1e-4)
    with pytest.raises(NotImplementedError, match="backward"):
        op.flex_relu(x.q, x.k, x.v, x.padding, True)
    assert op.impossible(cell, torch.device("cuda")) == {}
    assert set(op.impossible(cell, CPU)) == set(op.impossible(cell._replace(dropout=0.1), torch.device("cuda")))


@pytest.mark.parametrize("causal", [False, True])
def test_the_memory_of_the_operator_is_linear_in_the_length(causal):
    """At the same number of tokens it does not grow with the length, and that of stored scores does."""
    peaks = {}
    for length in (1024, 2048):
        cell = Cell(length, 2048, causal, heads=8, dim=32)
        x = op.make_inputs(cell, CPU)
        found, passes = op.candidates(cell, x), Passes((x.q, x.k, x.v), x.grad)
        peaks[length] = {n: peak_bytes(lambda n=n: passes.backward(n, found[n]), CPU) for n in ("rela", "relu")}  # noqa: B023
    assert peaks[2048]["rela"] < 1.1 * peaks[1024]["rela"] < 0.5 * peaks[1024]["relu"]
    assert peaks[2048]["relu"] > 1.8 * peaks[1024]["relu"]


def test_optional_candidates_that_fail_are_left_out_with_the_reason(monkeypatch):
    def fail(*_):
        raise RuntimeError("no C++ compiler\nwas found")

    monkeypatch.setattr(op, "compiled_plain", lambda: fail)
    result = op.measure(CELL, CPU, Timing(0.1, (1, 1)), memory_limit=12.0 * CELL.score_bytes)
    for measured in result["passes"].values():
        assert set(measured["seconds"]) == OURS - {"relu_compiled", "entmax15"}
        assert measured["skipped"]["relu_compiled"] == "RuntimeError: no C++ compiler"
        assert "its scores take" in measured["skipped"]["entmax15"] and "FlexAttention" in measured["skipped"]["flex"]


def test_an_operator_with_wrong_results_is_not_timed(monkeypatch):
    right = op.ops.rela_attention
    monkeypatch.setattr(op.ops, "rela_attention", lambda *args, **options: 1.01 * right(*args, **options))
    with pytest.raises(InputError, match="rela and relu differ by 0.01"):
        op.check(CELL, CPU, {"flex": ""})


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    folder = tmp_path_factory.mktemp("op")
    cells = [CELL, CELL._replace(length=16), CELL._replace(dropout=0.1), CELL._replace(causal=True)]
    plan = make_plan("cpu", True)._replace(seconds=0.2, rounds=(1, 2), op=cells)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(op, "compiled_plain", lambda: op.plain)
        result = run_benchmark(folder, plan, parts=["op"], progress=lambda line: None, threads=1)
    assert json.loads((folder / "benchmark.json").read_text()) == json.loads(json.dumps(result))
    return folder / "benchmark.json", result


def test_the_record_has_times_and_memory_of_both_passes(record):
    _, result = record
    assert [(c["length"], c["dropout"], c["causal"]) for c in result["op"]] == [
        *((8, 0.0, False), (16, 0.0, False), (8, 0.1, False), (8, 0.0, True))
    ]
    for cell in result["op"]:
        assert (
            cell["baseline"] == "sdpa"
            and cell["clock"] == "CPU"
            and set(cell["distances"]) == {*("softmax, sdpa", "relu, rela", "relu, relu_compiled")}
        )
        assert set(cell["peak_bytes"]) == OURS - {"relu_compiled"} and cell["peak_bytes"]["rela"] > 0
        for measured in cell["passes"].values():
            assert set(measured["seconds"]) == OURS and measured["ratio"] == measured["ratio_to_sdpa"]
    assert "op, T=8, dropout 0.1: sdpa 1.00 (1.00-1.00)" in describe_result(result)


def test_the_figure_of_the_report_and_of_the_benchmark(record, tmp_path):
    pytest.importorskip("matplotlib")
    from fairseq_rela.benchmark.figures import draw
    from fairseq_rela.report.operator_figure import operator_figure

    path, result = record
    assert [file.name for file in draw(result, tmp_path)] == ["op.png"]
    speeds = load_speeds(path)
    figure = operator_figure(speeds.operator, speeds.device, speeds.command)
    assert len(figure.rows) == 4 * 2 * len(OURS)
    (row,) = [r for r in figure.rows if r["implementation"] == "rela" and r["dropout"] and r["passes"] == "forward"]
    cell = result["op"][2]
    assert row["time_over_sdpa"] == cell["passes"]["forward"]["ratio"]["rela"]["median"]
    assert row["peak_mib"] == cell["peak_bytes"]["rela"] / 2**20
    panels = figure.draw().axes
    assert [panel.get_title(loc="left") for panel in panels] == ["no dropout", "dropout 0.1"] * 2
    assert [line.get_xydata()[:, 1].tolist() for line in panels[0].lines[:1]][0] == [
        c["passes"]["forward_backward"]["ratio"]["softmax"]["median"] for c in result["op"][:2]
    ]
    assert operator_figure([], "", "") is None
