"""Names of run folders."""

import dataclasses
from pathlib import Path

import pytest

from fairseq_rela.errors import InputError
from fairseq_rela.experiment.experiment import Experiment
from fairseq_rela.experiment.naming import changes_the_model, run_name
from fairseq_rela.experiment.run_record import refuse_different


@pytest.mark.parametrize(
    "overrides, name",
    [
        ((), "rela_g"),
        (("run=gpu4",), "rela_g"),
        (("run=slurm",), "rela_g"),
        (("run=cpu_smoke",), "rela_g.run-cpu_smoke"),  # another model
        (("sites=all",), "rela_g"),
        (
            ("common.seed=2", "model.dropout=0.2", "sites=decoder_cross"),
            "rela_g.sites-decoder+cross.dropout-0.2.seed-2",
        ),
        (("sites=nowhere",), "rela_g.sites-nowhere"),
        (("common.seed=2",), "rela_g.seed-2"),
        (("sites=cross", "common.seed=2"), "rela_g.sites-cross.seed-2"),
        (("model.attention_sites='cross,decoder'",), "rela_g.sites-decoder+cross"),
        (("model.attention_sites=[decoder,cross]",), "rela_g.sites-decoder+cross"),
        (("model.attention_sites=[cross, encoder, decoder]",), "rela_g"),
        (("model.attention_sites=['encoder','cross']",), "rela_g.sites-encoder+cross"),
        (('model.attention_sites=["encoder", "decoder", "cross"]',), "rela_g"),
        (("optimization.lr=[0.005]",), "rela_g.lr-0.005"),
        (("+model.rela_backend=plain",), "rela_g.rela_backend-plain"),
        (("checkpoint.finetune_from_model='/a b/c:d.pt'",), "rela_g.finetune_from_model-_a_b_c_d.pt"),
        (("~criterion.label_smoothing",), "rela_g.label_smoothing"),
    ],
)
def test_a_run_is_named_by_its_changed_settings(overrides, name):
    assert run_name("rela_g", overrides) == name


def test_long_names_are_shortened_and_stay_different():
    names = [run_name("rela_g", [f"task.x={'y' * 300}{end}"]) for end in "ab"]
    assert names[0] != names[1] and all(len(name) < 150 for name in names)


def test_runs_of_a_task_share_its_data():
    plain = Experiment("synthetic", "rela_g", Path("root"))
    other = dataclasses.replace(plain, overrides=("sites=cross", "common.seed=2"))
    assert plain.data == other.data == Path("root/synthetic/data")
    assert plain.run == Path("root/synthetic/rela_g") and other.run == Path("root/synthetic/rela_g.sites-cross.seed-2")


def test_equal_settings_in_another_order_or_spelling_are_the_same_run():
    record = {
        "overrides": ["common.seed=2", "sites=cross"],
        "configs": {"sites/cross.yaml": "1", "recipe/paper.yaml": "2"},
    }
    wanted = {
        "overrides": ["model.attention_sites=[cross]", "common.seed=2"],
        "configs": {"sites/all.yaml": "3", "recipe/paper.yaml": "2"},
    }
    refuse_different(Path("run"), "was trained", record, wanted)
    with pytest.raises(InputError, match="run was trained with other overrides; remove it, or give another"):
        refuse_different(Path("run"), "was trained", record, {**wanted, "overrides": ["common.seed=2"]})
    with pytest.raises(InputError, match="other configs: recipe/paper.yaml; "):
        refuse_different(Path("run"), "was trained", record, {**wanted, "configs": {"recipe/paper.yaml": "4"}})


@pytest.mark.parametrize("run", ["cpu", "gpu4", "gpu_small", "slurm"])
def test_settings_of_the_machine_do_not_change_the_model(run):
    assert not changes_the_model(f"run={run}")
    assert changes_the_model("run=cpu_smoke") and changes_the_model("size=big")
