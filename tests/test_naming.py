"""Names of run folders."""

from pathlib import Path

import pytest

from fairseq_rela.naming import run_name
from fairseq_rela.pipeline import Experiment


@pytest.mark.parametrize(
    "overrides, name",
    [
        ((), "rela_g"),
        (("run=gpu4",), "rela_g"),
        (("common.seed=2",), "rela_g.seed-2"),
        (("sites=cross", "common.seed=2"), "rela_g.sites-cross.seed-2"),
        (("model.attention_sites=decoder,cross",), "rela_g.sites-decoder+cross"),
        (("model.attention_sites=[decoder,cross]",), "rela_g.sites-decoder+cross"),
        (("optimization.lr=[0.005]",), "rela_g.lr-0.005"),
        (("+model.rela_backend=plain",), "rela_g.rela_backend-plain"),
        (("checkpoint.finetune_from_model='/a b/c:d.pt'",), "rela_g.finetune_from_model-_a_b_c_d.pt"),
        (("~criterion.label_smoothing",), "rela_g.label_smoothing"),
    ],
)
def test_a_run_is_named_by_what_differs(overrides, name):
    assert run_name("rela_g", overrides) == name


def test_long_names_are_cut_and_stay_different():
    names = [run_name("rela_g", [f"task.x={'y' * 300}{end}"]) for end in "ab"]
    assert names[0] != names[1] and all(len(name) < 150 for name in names)


def test_runs_of_a_task_share_its_data():
    plain = Experiment("synthetic", "rela_g", Path("root"))
    other = plain._replace(overrides=("sites=cross", "common.seed=2"))
    assert plain.data == other.data == Path("root/synthetic/data")
    assert plain.run == Path("root/synthetic/rela_g") and other.run == Path("root/synthetic/rela_g.sites-cross.seed-2")
