"""Verdicts follow the rule: only an interval that is completely on one side decides."""

import copy

import pytest
from study_records import collect, make_study
from test_study_tables import full_study

from fairseq_rela.study import claims, tables
from fairseq_rela.study.claims import AGREES, DIFFERS, OPEN, Check
from fairseq_rela.study.values import Summary, find_row


def verdict(study, start):
    """Return the verdict of the claim whose text begins with ``start``."""
    found = [claim for claim in claims.judge(study) if claim.claim.startswith(start)]
    assert len(found) == 1, start
    return found[0].verdict


def change(study, number, edit):
    """Return a copy in which every run of a row of Table 1 was edited, collected again."""
    study = copy.deepcopy(study)
    for run in find_row(study, number)["runs"]:
        edit(run)
    for row in study["rows"]:
        collect(row, find_row(study, 1))
    return study


@pytest.mark.parametrize(
    "interval,above,expected",
    [
        ((0.1, 0.5), True, AGREES),
        ((-0.5, -0.1), True, DIFFERS),
        ((-0.1, 0.5), True, OPEN),
        ((0.0, 0.5), True, OPEN),  # one end is at the limit
        ((0.1, 0.5), False, DIFFERS),
        ((-0.5, -0.1), False, AGREES),
        (None, True, OPEN),
    ],
)
def test_a_comparison_is_decided_by_its_interval_alone(interval, above, expected):
    assert Check("x", Summary(3.0, 1.0, 4, interval), above, 0.0).verdict == expected


def test_a_comparison_that_was_not_measured_is_open():
    assert Check("x", None, True, 0.0).verdict == OPEN
    assert Check("x", None, True, 0.0).measured == "not measured"


@pytest.mark.parametrize(
    "verdicts,expected",
    [
        ([AGREES, AGREES], AGREES),
        ([AGREES, OPEN], OPEN),
        ([AGREES, DIFFERS], DIFFERS),
        ([OPEN, DIFFERS], DIFFERS),
        ([], OPEN),
    ],
)
def test_a_claim_needs_all_of_its_comparisons(verdicts, expected):
    intervals = {AGREES: (1, 2), DIFFERS: (-2, -1), OPEN: (-1, 1)}
    checks = [Check("x", Summary(0.0, 1.0, 4, intervals[one]), True, 0.0) for one in verdicts]
    assert claims.overall(checks) == expected


def test_the_margin_is_the_largest_distance_in_the_paper():
    rela_g, softmax = [26.6, 37.9, 15.4, 20.8, 32.9], [26.9, 37.2, 15.5, 21.1, 32.7]
    assert claims.margin() == pytest.approx(max(abs(a - b) for a, b in zip(rela_g, softmax)))


@pytest.mark.parametrize(
    "rela_g,expected",
    [
        ([33.9, 34.1, 33.8, 34.0], AGREES),
        ([33.5, 33.6, 33.4, 33.5], AGREES),  # significantly worse by 0.5
        ([35.5, 35.6, 35.4, 35.5], AGREES),  # ahead
        ([32.5, 32.6, 32.4, 32.5], DIFFERS),
        ([33.2, 33.6, 33.0, 33.5], OPEN),
        ([32.5], OPEN),
        ([None, None], OPEN),
    ],
)
def test_quality_is_on_par_within_the_margin(rela_g, expected):
    study = make_study({"softmax": [34.0, 34.1, 33.9, 34.0], "rela_g": rela_g})
    assert verdict(study, "ReLA-g translates on par with softmax") == expected


@pytest.mark.parametrize(
    "relu,expected",
    [
        ([None, None], AGREES),
        ([None, 3.0], AGREES),
        ([None, 30.0], OPEN),
        ([30.0, 31.0], DIFFERS),
        ([None], OPEN),
        ([30.0], OPEN),
        ([], OPEN),
    ],
)
def test_relu_alone_fails_where_no_run_of_at_least_two_trains(relu, expected):
    study = make_study({"softmax": [34.0, 34.1], "relu": relu})
    assert verdict(study, "ReLU alone does not train") == expected


def test_a_run_that_has_no_baseline_with_its_seed_decides_nothing():
    study = make_study({"softmax": [34.0], "relu": [3.0, 3.0]})
    assert verdict(study, "ReLU alone does not train") == OPEN


@pytest.mark.parametrize(
    "start,rows,agrees,differs",
    [
        ("The gate", ("relu_rmsnorm", "rela_i", "rela_g"), (31.0, 33.0, 33.0), (33.0, 31.0, 33.5)),
        (
            "LayerNorm, GeLU",
            ("rela_g", "rela_g_layernorm", "rela_g_gelu", "rela_g_leaky_relu"),
            (33, 33, 33, 32),
            (33, 33, 35, 33),
        ),
        ("ReLA-g in decoder", ("softmax", "rela_g-decoder", "rela_g-cross"), (34, 34.2, 34), (34, 34, 32)),
        ("ReLA-g in the encoder", ("rela_g-encoder", "rela_g-decoder", "rela_g-cross"), (32, 34, 34), (34, 34.5, 33)),
        ("ReLA-g translates on par with sparsemax", ("sparsemax", "entmax15", "rela_g"), (34, 34, 34), (34, 32, 32)),
    ],
)
def test_claims_on_the_rows_of_table_1(start, rows, agrees, differs):
    for scores, expected in ((agrees, AGREES), (differs, DIFFERS)):
        steps = (0.0, 0.02, -0.01, 0.01)
        study = make_study(
            {row: [score + step * (2 + n) for step in steps] for n, (row, score) in enumerate(zip(rows, scores))}
        )
        assert verdict(study, start) == expected
    assert verdict(make_study({row: [33.0] for row in rows}), start) == OPEN


def test_claims_on_the_analysis_follow_the_numbers():
    study = full_study()
    starts = {
        "sparse": "ReLA-g is highly sparse",
        "off": "Heads of ReLA-g switch off",
        "shuffled": "Shuffled targets raise",
        "layer": "The attention averaged",
        "diverse": "Heads of ReLA-g are more diverse",
        "tempered": "They are so at \u03c4 = 0.5, 0.25 and 0.1 too",
        "softmax": "ReLA-g aligns better than softmax",
        "others": "ReLA-g aligns better than sparsemax",
    }
    assert {name: verdict(study, start) for name, start in starts.items()} == dict.fromkeys(starts, AGREES)

    def worse(run):
        analysis = run["analysis"]
        for site, entry in analysis["sites"].items():
            entry["sparsity"], entry["layer_null_rate"] = 0.3 + 0.001 * run["seed"], 0.2 + 0.001 * run["seed"]
            for layer in analysis["shuffled"]["sites"][site]["layers"]:
                layer["null_rate"] = entry["null_rate"] - 0.01 - 0.001 * run["seed"]
            entry["diversity"] = {tau: value / 10 for tau, value in entry["diversity"].items()}
        for kind in ("normal", "shifted"):
            analysis["alignment"][kind] = dict.fromkeys(("aol", "aoh"), 0.9 + 0.001 * run["seed"])

    changed = change(study, 7, worse)
    found = {name: verdict(changed, start) for name, start in starts.items()}
    assert found == {**dict.fromkeys(starts, DIFFERS), "off": AGREES}

    def awake(run):
        for entry in run["analysis"]["sites"].values():
            entry["null_rate"] = 0.0

    assert verdict(change(study, 7, awake), starts["off"]) == OPEN  # 0 is not above 0, and rates cannot be negative


def test_one_site_on_the_other_side_denies_the_claim_and_is_named():
    def dense_encoder(run):
        run["analysis"]["sites"]["encoder"]["sparsity"] = 0.2 + 0.001 * run["seed"]

    study = change(full_study(), 7, dense_encoder)
    claim = next(c for c in claims.judge(study) if c.claim.startswith("ReLA-g is highly sparse"))
    assert claim.verdict == DIFFERS and "encoder: 20.2 % [20.0, 20.5]" in claim.sentence


def test_claims_on_silver_alignments_name_them():
    silver = [claim.sentence for claim in claims.judge(full_study()) if "aligns better" in claim.claim]
    gold = [claim.sentence for claim in claims.judge(full_study(gold_kind="gold")) if "aligns better" in claim.claim]
    assert all("Against a silver alignment." in sentence for sentence in silver) and len(silver) == 2
    assert all("Against a gold alignment." in sentence for sentence in gold)


def test_word_level_numbers_decide_if_they_exist():
    def dense_pieces(run):
        for entry in run["analysis"]["sites"].values():
            entry["sparsity"] = 0.1

    words = change(full_study(words=True), 7, dense_pieces)
    assert verdict(words, "ReLA-g is highly sparse") == AGREES
    assert verdict(change(full_study(), 7, dense_pieces), "ReLA-g is highly sparse") == DIFFERS


def test_ranking_is_judged_where_it_was_measured():
    study = full_study()
    assert not [claim for claim in claims.judge(study) if "wrong pairs" in claim.claim]

    def rank(run):
        areas = {"dropped_words": 0.9, "swapped": 0.3}
        found = {kind: area + 0.001 * run["seed"] for kind, area in areas.items()}
        run["ranking"] = {kind: {"null_rate_auc": area, "logprob_auc": 0.7} for kind, area in found.items()}

    study = change(study, 7, rank)
    claim = next(claim for claim in claims.judge(study) if "wrong pairs" in claim.claim)
    assert claim.verdict == DIFFERS and claim.sentence.endswith("on average: dropped words.")


def test_every_verdict_is_one_of_three_words_and_the_rule_is_shown():
    study = full_study()
    markdown = tables.full(study)
    assert claims.RULE in markdown
    judged = claims.judge(study)
    assert {claim.verdict for claim in judged} <= {AGREES, DIFFERS, OPEN}
    assert all(claim.claim in markdown and claim.sentence in markdown for claim in judged)
    assert sum(claims.count(judged).values()) == len(judged)
