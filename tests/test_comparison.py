"""Comparison of the scores of several models on damaged pairs, against known numbers and published quantiles."""

import json
import math
import statistics

import pytest
from conftest import run_rela

from fairseq_rela.analysis import comparison, detection
from fairseq_rela.analysis.pair_scorer import Score
from fairseq_rela.analysis.summaries import summarise
from fairseq_rela.data.folder import DataFolder
from fairseq_rela.errors import InputError


def result(*areas, **more):
    kinds = {
        kind: dict(zip(("null_rate_auc", "logprob_auc", "both_auc"), values))
        for kind, values in zip(("copied", "deleted"), areas)
    }
    return {"pairs": 9, "damage_seed": 1, "kinds": kinds, **more}


def test_models_are_combined_with_paired_differences():
    results = [result((0.5, 0.9, 0.8), (0.75, 0.5, 0.6)), result((0.6, 0.8, 0.7), (0.85, 0.55, 0.6))]
    summary = comparison.combine(results)
    assert summary["copied"]["null_rate"] == pytest.approx({"mean": 0.55, "sd": math.sqrt(0.005), "n": 2})
    difference = summary["copied"]["difference"]  # -0.4 and -0.2
    assert difference["mean"] == pytest.approx(-0.3) and difference["sd"] == pytest.approx(math.sqrt(0.02))
    assert difference["interval"] == pytest.approx([-0.3 - 12.7062 * 0.1, -0.3 + 12.7062 * 0.1], abs=1e-4)
    assert comparison.recommend(summary) == "log_probability"  # 0.69 to 0.675 and 0.675
    assert (
        "detects damage better than the log-probability in deleted (mean of 2 models)"
        in comparison.describe_evidence(summary)
    )
    assert "with a 95 % interval of the paired difference above 0: none" in comparison.describe_evidence(summary)
    alone = comparison.combine(results[:1])["copied"]["difference"]
    assert alone == {"mean": pytest.approx(-0.4), "sd": None, "n": 1, "interval": None}
    better = comparison.combine([result((0.9, 0.5, 0.6), (0.9, 0.5, 0.6))])
    assert comparison.recommend(better) == "null_rate"
    near = comparison.combine([result((0.905, 0.9, 0.905), (0.505, 0.5, 0.505))])
    assert comparison.recommend(near) == "log_probability"  # the default where no other score is clearly better
    for other in (result((1, 1, 1), (1, 1, 1), pairs=8), result((1, 1, 1)), result((1,) * 3, (1,) * 3, damage_seed=2)):
        with pytest.raises(InputError, match="differ in their"):
            comparison.combine([results[0], other])
    with pytest.raises(InputError, match="give one or more"):
        comparison.combine([])


def test_intervals_have_the_published_quantiles_of_students_t():
    published = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706, 9: 2.2622, 10: 2.2281, 30: 2.0423, 120: 1.9799}
    for freedom, value in published.items():
        numbers = [float(i) for i in range(freedom + 1)]
        low, high = summarise(numbers).interval
        error = statistics.stdev(numbers) / math.sqrt(freedom + 1)
        assert ((high - low) / 2 / error, (high + low) / 2) == pytest.approx((value, freedom / 2), abs=1e-4)


@pytest.mark.slow
def test_several_models_are_measured_on_the_same_damage(trained, data, corpus, tmp_path):
    models = [trained / "checkpoint_last.pt", trained / "checkpoint_1_2.pt"]
    files = corpus / "test.xa", corpus / "test.xb"
    output = tmp_path / "rank.json"
    together = detection.evaluate(models, DataFolder(data), *files, output, seed=2, device="cpu")
    assert json.loads(output.read_text()) == together
    alone = [detection.evaluate([model], DataFolder(data), *files, seed=2, device="cpu") for model in models]
    assert [one["kinds"] for one in together["models"]] == [one["kinds"] for one in alone]
    assert together["summary"] == comparison.combine(alone)
    for kind, areas in together["kinds"].items():
        for name, area in areas.items():
            assert area == pytest.approx(statistics.fmean(one["kinds"][kind][name] for one in alone))
    said = detection.describe(together)
    assert "mean (sd) of 2 models" in said and f"recommended: rela rank --by {together['recommended']}" in said
    assert "mean (sd)" not in detection.describe(alone[0])
    with pytest.raises(InputError, match="given twice"):
        detection.evaluate([models[0]] * 2, DataFolder(data), *files, device="cpu")


def test_areas_are_computed_for_each_score():
    good = [Score(0.1, -1.0, 3, 3), Score(0.3, -2.0, 3, 3)]
    bad = [Score(0.2, -1.5, 3, 3), Score(0.4, -3.0, 3, 3)]
    # ranks by null rate 0 2 | 1 3, by log-probability 0 2 | 1 3
    assert detection.areas(good, bad) == {"null_rate_auc": 0.75, "logprob_auc": 0.75, "both_auc": 0.75}
    bad[0] = Score(0.0, -5.0, 3, 3)  # 1 2 | 0 3, 0 1 | 3 2: sums 1 3 | 3 5
    assert detection.areas(good, bad) == {"null_rate_auc": 0.5, "logprob_auc": 1.0, "both_auc": 0.875}


@pytest.mark.slow
def test_incompatible_options_are_refused(trained, data, corpus, tmp_path):
    common = (trained / "checkpoint_last.pt", corpus / "test.xa", corpus / "test.xb", "--data", data)
    more = ("--output", tmp_path / "o", "--more-checkpoints", trained / "checkpoint_1_2.pt")
    done = run_rela("rank", *common, *more)
    assert done.returncode == 2 and "only --damage measures several models" in done.stderr
    assert not list(tmp_path.iterdir())
