"""Every YAML file is read and composed, and each value is written in one place."""

import copy
import re
import shutil

import pytest
import yaml
from conftest import ROOT

from fairseq_rela.errors import InputError
from fairseq_rela.experiment import composed, tasks
from fairseq_rela.experiment import decoding as searches
from fairseq_rela.experiment.training import check_overrides
from fairseq_rela.files import configs
from fairseq_rela.variants import VARIANTS

CONFIGS = ROOT / "configs"


def compose(task, *overrides, folder=CONFIGS):
    """Return the configuration that fairseq-hydra-train composes, on top of fairseq's defaults."""
    from fairseq.dataclass.initialize import hydra_init
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    GlobalHydra.instance().clear()
    hydra_init(task)
    with initialize_config_dir(config_dir=str(folder)):
        cfg = compose(task, overrides=["common.user_dir=x", "task.data=d", "checkpoint.save_dir=s", *overrides])
        return OmegaConf.to_container(cfg, resolve=True)


def test_tasks_have_all_their_files():
    wmt = {"wmt14_en_de", "wmt14_en_fr", "wmt18_en_fi", "wmt18_zh_en", "wmt16_ro_en"}
    assert {"synthetic", "multi30k_en_de"} | wmt == set(tasks.task_names())
    for task in tasks.task_names():
        assert tasks.load_task(task).label == task
        assert (CONFIGS / "experiment" / f"{task}.yaml").is_file()


@pytest.mark.parametrize("task", tasks.task_names())
def test_every_choice_of_data_changes_the_task(task):
    offered = configs.load_yaml("corpus", task).get("choices", {})
    seen = set()
    for key, options in offered.items():
        for option in options:
            made = tasks.load_task(task, (f"{key}={option}",))
            assert made.label == (task if option == next(iter(options)) else f"{task}.{key}-{option}")
            seen.add((str(made.settings), str(made.sources)))
    # each choice changes the settings or the sources
    assert len(seen) == 1 + sum(len(options) - 1 for options in offered.values()) or not offered


def test_unknown_choices_are_refused():
    with pytest.raises(InputError, match="wmt14_en_fr has no such choice; it offers none"):
        tasks.load_task("wmt14_en_fr", ("test=filtered",))
    with pytest.raises(InputError, match="choose one of train=statmt, train=stanford"):
        tasks.load_task("wmt14_en_de", ("train=google",))
    with pytest.raises(InputError, match="--choose train=statmt: train is chosen twice"):
        tasks.load_task("wmt14_en_de", ("train=stanford", "train=statmt"))


def test_sizes_of_the_paper_and_of_the_official_test_sets():
    """FIDELITY section 4 and WMT.md: pairs, dev and test lines, 13a reference lengths."""
    known = {
        "wmt14_en_de": (4.5e6, 3000, 3003, 62688),
        "wmt14_en_fr": (36e6, 3000, 3003, 77306),
        "wmt18_en_fi": (3.3e6, 3002, 3000, 44836),
        "wmt18_zh_en": (25e6, 2001, 3981, 109936),
        "wmt16_ro_en": (608e3, 1999, 1999, 47562),
    }
    for name, (train, valid, test, length) in known.items():
        task = tasks.load_task(name)
        assert abs(task.kept.pairs - train) <= 0.015 * train
        assert (task.expected["valid"], task.expected["test"], task.sources.reference_length) == (valid, test, length)
        assert (task.settings.merges, task.settings.vocabulary_threshold, task.settings.max_pieces) == (32000, 50, 255)


def test_only_corpus_files_hold_addresses():
    scripts = [path for path in (ROOT / "scripts").iterdir() if path.is_file()]
    for path in [*(ROOT / "fairseq_rela").rglob("*.py"), *CONFIGS.rglob("*.yaml"), *scripts]:
        if path.parent.name != "corpus":
            text = path.read_text(encoding="utf-8").replace("http://www.w3.org/XML", "")
            text = text.replace("https://arxiv.org/abs/2104.07012", "")  # papers, not downloads
            assert "http://" not in text and "https://" not in text, path


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_an_update_is_25_000_tokens_on_any_number_of_gpus(devices):
    """B42: the number of GPUs must not change the size of an update."""
    for task in (task for task in tasks.task_names() if task.startswith("wmt")):
        found = composed.composed_values(task, [f"run=gpu{devices}"])
        assert found["distributed_training.distributed_world_size"] == devices
        assert found["dataset.max_tokens"] * found["optimization.update_freq"][0] * devices == 25_000
        assert found["model._name"] == "transformer_rela"  # base


def test_the_attention_group_holds_every_variant():
    found = {p.stem: yaml.safe_load(p.read_text())["attention"] for p in (CONFIGS / "attention").glob("*.yaml")}
    assert found == {name: name for name in VARIANTS}


@pytest.mark.parametrize("task", tasks.task_names())
def test_the_recipe_is_passed_to_fairseq(task):
    """The values are those of FIDELITY section 6, except where the experiment sets others."""
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
    recipe = configs.load_yaml("recipe", "paper")
    assert recipe["optimization"]["lr"] == [pytest.approx(512**-0.5 * 4000**-0.5, rel=1e-6)]
    assert recipe["lr_scheduler"] == {
        "_name": "inverse_sqrt",
        "warmup_updates": 4000,
        "warmup_init_lr": pytest.approx(512**-0.5 * 4000**-1.5, rel=1e-6),
    }
    assert recipe["optimization"]["max_update"] == 300_000


@pytest.mark.parametrize("name", VARIANTS)
def test_every_file_of_the_group_attention_sets_one_value(name):
    """By this package's composer, which is faster than Hydra; it is compared with Hydra below."""
    usual = composed.composed_values("synthetic")
    assert composed.composed_values("synthetic", (f"attention={name}",)) == {**usual, "model.attention": name}


@pytest.mark.parametrize("group", ["size", "run"])
def test_every_choice_of_every_group_composes(group):
    for path in sorted((CONFIGS / group).glob("*.yaml")):
        if path.stem == "slurm":
            pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
        assert compose("synthetic", f"{group}={path.stem}")


def test_the_language_model_composes():
    cfg = compose("language_model", "model.attention=softmax", folder=CONFIGS / "lm")
    assert cfg["model"]["_name"] == "transformer_lm_rela_tiny" and cfg["model"]["attention"] == "softmax"
    assert cfg["task"]["_name"] == "language_modeling" and cfg["task"]["tokens_per_sample"] == 512
    warmup = cfg["lr_scheduler"]["warmup_updates"]
    assert cfg["lr_scheduler"]["warmup_init_lr"] == pytest.approx(cfg["optimization"]["lr"][0] / warmup)
    assert "language_model" not in tasks.task_names()


def test_decoding_settings_come_from_the_yaml():
    decoding = searches.load_decoding()
    assert (decoding.beam, decoding.gnmt_lenpen, decoding.max_len_a, decoding.max_len_b) == (4, 0.6, 1, 50)


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(InputError, match="no task 'nothing'; there are multi30k_en_de, synthetic"):
        tasks.load_task("nothing")
    with pytest.raises(InputError, match="no such file; --raw must be the folder"):
        tasks.load_task("multi30k_en_de").corpus(tmp_path)


WRONG_VALUES = [None, 3, -1, "x", "", [], {}, [1], {"a": 1}, True, False, 2.5, float("nan"), [[1, 2]]]


def places(value, path=()):
    """Yield the path of every entry of a YAML file."""
    if path:
        yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def replaced(spec, path, value):
    spec = copy.deepcopy(spec)
    node = spec
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return spec


@pytest.mark.parametrize(
    "group, name",
    [
        pytest.param("corpus", task, marks=pytest.mark.slow if task.startswith("wmt") else [])
        for task in tasks.task_names()
    ]
    + [("decoding", "paper")],
)
def test_a_wrong_value_anywhere_is_an_error_in_one_line(group, name, tmp_path, monkeypatch):
    """Replace every entry by every type of value: it is accepted, or named with its file (YAML reads `no` as False).

    The files have the same kinds of entries, so in most of them each entry has only every fourth value, in turn.
    """
    original, load_yaml = configs.load_yaml(group, name), configs.load_yaml
    all_values = name in ("wmt14_en_de", "multi30k_en_de", "synthetic", "paper")
    refused = 0
    for number, path in enumerate(places(original)):
        for value in WRONG_VALUES if all_values else WRONG_VALUES[number % 4 :: 4]:
            spec = replaced(original, path, value)
            monkeypatch.setattr(
                searches if group == "decoding" else tasks,
                "load_yaml",
                lambda g, n, spec=spec: copy.deepcopy(spec) if g == group else load_yaml(g, n),
            )
            try:
                if group == "decoding":
                    searches.load_decoding()
                else:
                    task = tasks.load_task(name)
                    assert all(isinstance(lang, str) for lang in task.settings.languages)
                    assert all(isinstance(number, int) for number in task.expected.values())
                    with pytest.raises(InputError, match="no such file"):
                        task.corpus(tmp_path)
            except InputError as error:
                refused += 1
                assert len(str(error).splitlines()) == 1
                assert "choices" in path or group == "decoding" or f"configs/corpus/{name}.yaml: " in str(error)
    assert refused > 20


@pytest.mark.parametrize("name", ["../../x", "a/b", "", ".", "a b", 3])
def test_names_of_choices_and_subsets_must_be_safe_folder_names(name, monkeypatch):
    """The names of choices and subsets cannot lead out of the folder of the experiments."""
    spec = configs.load_yaml("corpus", "wmt14_en_de")
    subset = next(iter(spec["subsets"].values()))
    monkeypatch.setattr(tasks, "load_yaml", lambda *_: {**copy.deepcopy(spec), "subsets": {name: subset}})
    with pytest.raises(InputError, match="wmt14_en_de.yaml: subset .*: give a name of letters"):
        tasks.load_task("wmt14_en_de")
    choices = {"train": {"default": {}, name: {}}}
    monkeypatch.setattr(tasks, "load_yaml", lambda *_: {**copy.deepcopy(spec), "choices": choices})
    with pytest.raises(InputError, match="give a name of letters|choose one of"):
        tasks.load_task("wmt14_en_de", (f"train={name}",))


def test_a_misspelt_entry_is_refused(monkeypatch):
    spec = configs.load_yaml("corpus", "synthetic")
    monkeypatch.setattr(tasks, "load_yaml", lambda *_: {**copy.deepcopy(spec), "expected_pair": {"test": 1}})
    monkeypatch.setattr(tasks, "require_task", lambda name: None)
    with pytest.raises(InputError, match="synthetic.yaml: unknown entry expected_pair; there are bytes_a_pair, "):
        tasks.load_task("synthetic")


def test_downloads_that_no_split_uses_are_refused(monkeypatch):
    spec = {**configs.load_yaml("corpus", "synthetic"), "downloads": {"a": {"urls": ["http://x/a"]}}}
    monkeypatch.setattr(tasks, "load_yaml", lambda *_: spec)
    with pytest.raises(InputError, match="synthetic.yaml: downloads are given, but no train"):
        tasks.load_task("synthetic")


@pytest.mark.parametrize(
    "content",
    [
        *("!!python/object/apply:os.mkdir [{}]", "a: !!python/name:os.system", "- 1", "a: [", "a: 2018-99-99"),
        "# K\xf6nig",  # as Latin-1, below
    ],
)
def test_yaml_files_cannot_run_code(content, tmp_path, monkeypatch):
    """YAML content is only read as data."""
    shutil.copytree(CONFIGS, tmp_path / "configs")
    (tmp_path / "configs" / "corpus" / "synthetic.yaml").write_text(
        content.format(tmp_path / "made"), encoding="latin-1"
    )
    monkeypatch.setenv(configs.FOLDER_VARIABLE, str(tmp_path / "configs"))
    with pytest.raises(InputError, match="synthetic.yaml: not (valid YAML|a mapping)"):
        tasks.load_task("synthetic")
    assert [path.name for path in tmp_path.iterdir()] == ["configs"]


def test_the_package_never_evaluates_text_as_code():
    """There is no eval, no exec, and no unsafe loading of YAML, pickles or archives in the package."""
    forbidden = re.compile(
        r"(?<![\w.])(?<!def )(eval|exec|compile)\(|yaml\.(load|unsafe_load|full_load)\(|pickle\.loads?\("
        r"|extractall\(|os\.system\(|shell=True|weights_only=False|__import__\("
    )
    for path in (ROOT / "fairseq_rela").rglob("*.py"):
        found = forbidden.search(path.read_text(encoding="utf-8"))
        assert not found, (path, found)


def test_checksums_cover_the_files_that_are_composed():
    files = set(composed.checksums("multi30k_en_de", ["attention=relu", "size=base", "optimization.max_update=1"]))
    assert files == {
        "multi30k_en_de.yaml",
        "recipe/paper.yaml",
        "decoding/paper.yaml",
        "attention/relu.yaml",
        "size/base.yaml",
        "sites/all.yaml",
        "run/cpu.yaml",
        "experiment/multi30k_en_de.yaml",
    }
    with pytest.raises(InputError, match="no config 'huge' in .*size; there are base, big, tiny"):
        composed.checksums("synthetic", ["size=huge"])


def test_slurm_jobs_take_four_gpus_by_hydras_launcher():
    """The settings of `-m run=slurm` for submitit are read."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    from fairseq.dataclass.initialize import hydra_init
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    hydra_init("wmt14_en_de")
    with initialize_config_dir(config_dir=str(CONFIGS)):
        overrides = ["run=slurm", "attention=relu", "task.data=d", "checkpoint.save_dir=s", "common.user_dir=x"]
        cfg = compose("wmt14_en_de", overrides=overrides, return_hydra_config=True)
        launcher = cfg.hydra.launcher
        assert launcher._target_.endswith("SlurmLauncher") and launcher.submitit_folder == "s/slurm"
        assert (launcher.gpus_per_node, launcher.tasks_per_node, launcher.name) == (4, 1, "rela-relu")
        assert cfg.distributed_training.distributed_world_size == 4 == launcher.gpus_per_node
        assert cfg.dataset.max_tokens * cfg.optimization.update_freq[0] * 4 == 25_000


@pytest.mark.parametrize("task", tasks.task_names())
def test_every_yaml_builds_its_model(task, uninitialised):
    """Every model has its own size, with small dictionaries."""
    from conftest import make_task
    from fairseq.models import build_model
    from omegaconf import OmegaConf

    cfg = OmegaConf.create(compose(task, "attention=rela_g")["model"])
    model = build_model(cfg, make_task())
    layers, dim, heads = (2, 128, 4) if task in ("synthetic", "multi30k_en_de") else (6, 512, 8)
    assert len(model.encoder.layers) == len(model.decoder.layers) == layers
    assert model.decoder.embed_tokens.embedding_dim == dim
    assert {module.num_heads for module in model.modules() if hasattr(module, "num_heads")} == {heads}
    assert sum(p.numel() for n, p in model.named_parameters() if "attn_norm" in n) == 3 * layers * 2 * dim
    # separate vocabularies; the output shares the target's
    assert model.decoder.embed_tokens.weight is model.decoder.output_projection.weight
    assert model.encoder.embed_tokens.weight is not model.decoder.embed_tokens.weight
    if layers == 6:
        embeddings = sum(m.weight.numel() for m in (model.encoder.embed_tokens, model.decoder.embed_tokens))
        assert sum(p.numel() for p in model.parameters()) - embeddings == 44_138_496 + 18_432  # FIDELITY section 4


@pytest.mark.parametrize("task", tasks.task_names())
@pytest.mark.parametrize("run", ["cpu", "cpu_smoke", "gpu1", "gpu8", "gpu_small", "slurm"])
def test_no_machine_changes_the_tokens_of_an_update(task, run):
    found = composed.composed_values(task, [f"run={run}"])
    tokens = found["dataset.max_tokens"] * found["optimization.update_freq"][0]
    tokens *= found["distributed_training.distributed_world_size"]
    meant = 25_000 if task.startswith("wmt") else 4_096
    if tokens == meant or run == "cpu_smoke":
        check_overrides(task, [f"run={run}"])
    else:
        with pytest.raises(InputError, match=f"would have {tokens:,} tokens, .* {meant:,}; give run=(gpu1|cpu) or"):
            check_overrides(task, [f"run={run}"])
        check_overrides(task, [f"run={run}", "dataset.max_tokens=1000"])


def test_a_machine_of_ones_own_may_limit_sentences_instead_of_tokens(tmp_path, monkeypatch):
    shutil.copytree(CONFIGS, tmp_path / "configs")
    monkeypatch.setenv(configs.FOLDER_VARIABLE, str(tmp_path / "configs"))
    (tmp_path / "configs" / "run" / "cpu.yaml").write_text("# @package _global_\ndataset:\n  batch_size: 8\n")
    check_overrides("synthetic", ["run=gpu1"])
    assert composed.runs_with_updates_of(4096) == ["gpu_small"]


@pytest.mark.parametrize(
    "overrides", [(), ("attention=relu", "size=base", "sites=cross", "run=slurm"), ("attention=relu", "+start=softmax")]
)
def test_composed_values_equal_those_of_hydra(overrides):
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(config_dir=str(configs.config_folder())):  # version_base would stay set
        expected = compose("multi30k_en_de", overrides=list(overrides))
    found = composed.composed_values("multi30k_en_de", overrides)
    assert found["model.attention"] == ("relu" if overrides else "rela_g") and len(found) > 30
    assert not [key for key in found if key.startswith("hydra") or "dir" in key]
    for key, value in found.items():
        node = expected
        for part in key.split("."):
            node = node[part]
        assert (list(node) if isinstance(value, list) else node) == value, key
