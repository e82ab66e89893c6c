"""Measured sparsity beside the target: the line of `rela analyze` and the table of `rela study`."""

import pytest
from study_records import make_study

from fairseq_rela.analysis.targets import describe_target, measured_sparsity
from fairseq_rela.study.target_table import target_tables


def analysis(cross, **more):
    sites = {"encoder": {"sparsity": 0.71}, "decoder": {"sparsity": 0.2}, "cross": {"sparsity": cross}}
    return {"sparsity_target": 0.7, "attention_sites": ["encoder", "cross"], "sites": sites, **more}


@pytest.mark.parametrize(
    "cross, verdict",
    [(0.671, "met within 3 points at every site"), (0.745, "missed by more than 3 points: cross")],
)
def test_a_line_names_the_sites_that_miss_the_target(cross, verdict):
    line = describe_target(analysis(cross))
    assert line.startswith(f"sparsity target 70.0%, {verdict};") and "encoder 71.0% (+1.0)" in line
    assert "decoder" not in line  # it has softmax


def test_the_target_is_compared_with_pieces_only():
    words = {"sites": {"encoder": {"sparsity": 0.9}, "cross": {"sparsity": 0.9}}}
    assert measured_sparsity(analysis(0.7, level="pieces", words=words)) == {"encoder": 0.71, "cross": 0.7}
    assert measured_sparsity(analysis(0.7, level="words")) == {}
    assert describe_target({"sites": {}}) is None


def test_the_table_of_a_study_lists_every_miss():
    study = make_study({"softmax": [34.0, 35.0], "rela_g": [33.0, 33.5]}, seeds=(1, 2))
    assert target_tables(study) == []
    for run, cross in zip(study["rows"][1]["runs"], (0.70, 0.75)):
        run["analysis"]["sparsity_target"] = 0.7
        for site, share in (("encoder", 0.69), ("decoder", 0.72), ("cross", cross)):
            run["analysis"]["sites"][site]["sparsity"] = share
    (table,) = target_tables(study)
    (row,) = table.rows
    assert [cell.text for cell in row][1:] == ["70.0", "69.0 ± 0.0", "72.0 ± 0.0", "72.5 ± 3.5"]
    assert table.notes[0].endswith("Missed by more than 3 points: rela_g with seed 2 at cross (+5.0).")
