"""Every YAML file: read, composed, and one place for each value."""

import pytest
import yaml
from conftest import ROOT

from fairseq_rela import config
from fairseq_rela.errors import InputError
from fairseq_rela.variants import VARIANTS

CONFIGS = ROOT / "configs"


def compose(task, *overrides):
    """What fairseq-hydra-train composes, with fairseq's defaults under it."""
    from fairseq.dataclass.initialize import hydra_init
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    GlobalHydra.instance().clear()
    hydra_init(task)
    with initialize_config_dir(config_dir=str(CONFIGS)):
        cfg = compose(task, overrides=["common.user_dir=x", "task.data=d", "checkpoint.save_dir=s", *overrides])
        return OmegaConf.to_container(cfg, resolve=True)


def test_tasks_have_all_their_files():
    assert {"synthetic", "multi30k_en_de"} <= set(config.task_names())
    for task in config.task_names():
        config.load_settings(task)
        assert (CONFIGS / "experiment" / f"{task}.yaml").is_file()


def test_attention_group_holds_every_variant():
    found = {p.stem: yaml.safe_load(p.read_text())["attention"] for p in (CONFIGS / "attention").glob("*.yaml")}
    assert found == {name: name for name in VARIANTS}


@pytest.mark.parametrize("task", config.task_names())
def test_the_recipe_reaches_fairseq(task):
    """FIDELITY section 6, where the experiment does not differ."""
    cfg = compose(task, "attention=sparsemax")
    assert cfg["model"]["attention"] == "sparsemax" and cfg["model"]["activation_dropout"] == 0.1
    assert cfg["model"]["share_decoder_input_output_embed"] is True
    assert cfg["criterion"] == {"_name": "label_smoothed_cross_entropy", "label_smoothing": 0.1}
    assert cfg["optimizer"]["adam_eps"] == 1e-8 and cfg["optimization"]["clip_norm"] == 0
    assert cfg["generation"]["beam"] == 4 and cfg["generation"]["max_len_b"] == 50
    assert cfg["task"] == {"_name": "translation_rela", "gnmt_lenpen": 0.6, "data": "d"}
    warmup = cfg["lr_scheduler"]["warmup_updates"]
    assert cfg["lr_scheduler"]["warmup_init_lr"] == pytest.approx(cfg["optimization"]["lr"][0] / warmup, rel=1e-3)


def test_the_published_recipe():
    recipe = config.load_yaml("recipe", "paper")
    assert recipe["optimization"]["lr"] == [pytest.approx(512**-0.5 * 4000**-0.5, rel=1e-6)]
    assert recipe["lr_scheduler"] == {
        "_name": "inverse_sqrt",
        "warmup_updates": 4000,
        "warmup_init_lr": pytest.approx(512**-0.5 * 4000**-1.5, rel=1e-6),
    }
    assert recipe["optimization"]["max_update"] == 300_000


@pytest.mark.parametrize("group", ["size", "run", "attention"])
def test_every_choice_of_every_group_composes(group):
    for path in sorted((CONFIGS / group).glob("*.yaml")):
        assert compose("synthetic", f"{group}={path.stem}")


def test_decoding_comes_from_the_yaml():
    decoding = config.load_decoding()
    assert (decoding.beam, decoding.gnmt_lenpen, decoding.max_len_a, decoding.max_len_b) == (4, 0.6, 1, 50)


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(InputError, match="no config 'nothing' in .*corpus; there are multi30k_en_de, synthetic"):
        config.load_settings("nothing")
    with pytest.raises(InputError, match="no such file; --raw must be the folder"):
        config.load_corpus("multi30k_en_de", tmp_path)


def test_checksums_are_of_the_files_that_are_composed():
    files = set(config.checksums("multi30k_en_de", ["attention=relu", "size=base", "optimization.max_update=1"]))
    assert files == {
        "multi30k_en_de.yaml",
        "recipe/paper.yaml",
        "decoding/paper.yaml",
        "attention/relu.yaml",
        "size/base.yaml",
        "run/cpu.yaml",
        "experiment/multi30k_en_de.yaml",
    }
    with pytest.raises(InputError, match="no config 'huge' in .*size; there are base, big, tiny"):
        config.checksums("synthetic", ["size=huge"])
