"""`rela analyze` on a model trained for a few updates, against counts that the test makes itself."""

import json

import pytest
from conftest import run_rela

from fairseq_rela.analysis.analyze import summarise

pytestmark = pytest.mark.slow


def test_the_command_writes_figures_links_and_rates(corpus, data, trained, tmp_path):
    checkpoint = trained / "checkpoint_last.pt"
    arguments = ["analyze", checkpoint, "--data", data, "--output", tmp_path / "out"]
    result = run_rela(*arguments, "--gold", corpus / "test.align")
    assert result.returncode == 0, result.stderr[-2000:]
    assert "AER normal" in result.stdout and "null queries" in result.stdout
    assert "pieces cross " in result.stdout and "words  cross " in result.stdout
    analysis = json.loads((tmp_path / "out" / "analysis.json").read_text())
    summary = summarise(checkpoint, data, "test")
    assert (analysis["label"], analysis["sentences"]) == ("rela_g", 300)
    assert (analysis["level"], summary["level"], analysis["layer_attention"]) == ("pieces", "pieces", "raw")
    assert list(analysis["words"]["sites"]) == list(analysis["sites"])
    assert analysis["parameters"] == summary["parameters"]
    for site, entry in summary["sites"].items():
        for key in ("sparsity", "null_rate"):
            assert analysis["sites"][site][key] == pytest.approx(entry[key], abs=1e-9)
        assert all(0 <= d <= 1.3863 for d in analysis["sites"][site]["diversity"].values())  # log of 4 heads
        # the encoder does not see the targets
        if site == "encoder":
            assert analysis["shuffled"]["sites"][site]["null_rate"] == pytest.approx(entry["null_rate"], abs=1e-6)
    for kind in ("normal", "shifted"):
        layers = analysis["alignment"][kind]["layers"]
        best = [min(head["aer"] for head in layer["heads"]) for layer in layers]
        assert analysis["alignment"][kind]["aoh"] == pytest.approx(sum(best) / len(best))
        assert [layer["heads"][layer["best_head"]]["aer"] for layer in layers] == best
    # the written links give the reported rate
    file = tmp_path / "out" / "alignments" / "normal.layer0.head1.pharaoh"
    rate = run_rela("aer", corpus / "test.align", file, "--gold-base", 0).stdout
    assert rate.startswith(f"AER {100 * analysis['alignment']['normal']['layers'][0]['heads'][1]['aer']:.1f} ")
    examples = json.loads((tmp_path / "out" / "examples.json").read_text())
    sentence = examples["sentences"][0]
    cross = sentence["weights"]["cross"]
    assert (len(cross), len(cross[0])) == (2, 4) and len(examples["sentences"]) == 6
    assert (len(cross[0][0]), len(cross[0][0][0])) == (len(sentence["target"]), len(sentence["source"]))
    # a gold alignment of another text
    wrong = tmp_path / "wrong.align"
    wrong.write_text("40-40\n" * 300)
    refused = run_rela(*arguments, "--gold", wrong)
    assert (
        refused.returncode == 2
        and len(refused.stderr.strip().splitlines()[-1]) > 0
        and "Traceback" not in refused.stderr
    )
