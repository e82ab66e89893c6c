"""Every default is written once, in configs/: a changed copy changes the help and the behaviour of the command."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

from fairseq_rela import cli
from fairseq_rela.data import folder as folders
from fairseq_rela.data.settings import Settings
from fairseq_rela.errors import InputError
from fairseq_rela.experiment import averaging, reproduce, run_stages, translation
from fairseq_rela.experiment.experiment import Experiment
from fairseq_rela.files.configs import FOLDER_VARIABLE, load_defaults

CONFIGS = ROOT / "configs"
# file of configs/ to other values of its defaults
CHANGED = {
    "defaults/preparation": {
        "tokeniser": "none",
        **{"max_tokens": 251, "max_ratio": 8.5, "max_pieces": 1001, "merges": 31234, "vocabulary_threshold": 51},
    },
    "defaults/decoding": {"lenpen": 1.5, "max_tokens": 4097},
    "defaults/experiment": {"attention": "rela_i", "stages": ["train", "score"], "averaged": 7},
    "defaults/bench": {
        **{"parts": ["core", "flops"], "subset": "valid", "batches": [1, 17], "batches_cuda": [1, 65]},
        **{"lengths": [17, 33, 100], "quick_lengths": [18, 33], "contexts": [256, 300]},
        **{"op_lengths": [19], "quick_op_lengths": [20], "quick_op_lengths_cuda": [21]},
        **{"rounds": 4, "quick_sentences": 21, "steps": 501, "quick_steps": 52},
    },
    "decoding/paper": {"generation": {"beam": 9, "max_len_a": 2, "max_len_b": 53}, "task": {"gnmt_lenpen": 0.65}},
}
# verb to the lines of its help that show them
HELP = {
    "prepare": ["none", "251", "8.5", "1001", "31234", "51"],
    "score": ["none"],
    "translate": ["9", "0.65", "2", "53", "4097"],
    "rank": ["4097"],
    "train": ["rela_i"],
    "reproduce": ["rela_i", "train, score"],
    "average": ["7"],
    "bench": [
        "core,flops;",
        "17,33,100; with --quick on a CPU: 18,33",
        "256,300",
        "19",
        "valid",
        "1,17; on a GPU: 1,65",
        "4",
        "all; with --quick: 21",
        "501; with --quick: 52",
    ],
}


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """Make a user's own copy of configs/."""
    folder = tmp_path / "configs"
    shutil.copytree(CONFIGS, folder)
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    return folder


@pytest.fixture
def changed(copy):
    """Make a copy in which every default has another value."""
    for name, values in CHANGED.items():
        path = copy / f"{name}.yaml"
        assert yaml.safe_load(path.read_text(encoding="utf-8")).keys() == values.keys()
        path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return copy


def help_of(verb, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([verb, "--help"])
    assert ended.value.code == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_changed_copy_changes_every_default():
    assert {path.stem for path in (CONFIGS / "defaults").iterdir()} == {
        name.split("/")[1] for name in CHANGED if name.startswith("defaults/")
    }


@pytest.mark.parametrize("verb", HELP)
def test_the_help_shows_the_defaults_of_the_files(verb, changed, capsys):
    found = help_of(verb, capsys)
    for value in HELP[verb]:
        assert f"(default: {value}" in found


def test_the_help_shows_a_default_of_zero_and_omits_missing_defaults(capsys):
    found = help_of("analyze", capsys)
    assert "number of the first word in --gold (default: 0)" in found
    assert "None" not in found and "False" not in found and "[]" not in found


def test_the_help_of_the_command_reads_no_config_files(copy, capsys):
    shutil.rmtree(copy)
    assert cli.main([]) == 0 and cli.main(["user-dir"]) == 0
    assert cli.main(["aer", "nowhere", "nowhere"]) == 2 and "nowhere: cannot be read" in capsys.readouterr().err


def test_settings_of_prepared_data_use_the_defaults(changed):
    settings = Settings("en", "de", merges=10)
    assert {name: getattr(settings, name) for name in CHANGED["defaults/preparation"]} == {
        **CHANGED["defaults/preparation"],
        "merges": 10,
    }


def test_settings_of_a_task_replace_the_defaults(changed):
    settings = Experiment("wmt16_ro_en", "rela_g", changed).spec.settings
    assert (settings.merges, settings.max_ratio) == (31234, 8.5)  # the defaults
    assert (settings.max_tokens, settings.max_pieces) == (80, 255)  # those of the task


@pytest.mark.parametrize(
    "options, beam, penalties",
    [
        ([], 9, (0.65, 1.5)),
        (["--beam", "2", "--lenpen", "0.5"], 2, (None, 0.5)),
        (["--gnmt-lenpen", "0.3"], 9, (0.3, 1.5)),
    ],
)
def test_translate_searches_with_the_defaults(options, beam, penalties, changed, monkeypatch, capsys):
    done = []
    monkeypatch.setattr(translation, "translate", lambda *arguments: done.append(arguments[3]))
    monkeypatch.setattr(folders, "DataFolder", Path)
    assert cli.main(["translate", "data", "--checkpoint", "x", "--output", "o", *options]) == 0
    (search,) = done
    assert (search.beam, search.gnmt_lenpen, search.lenpen) == (beam, *penalties)
    assert (search.max_len_a, search.max_len_b, search.max_tokens) == (2, 53, 4097)


def test_reproduce_runs_the_stages_with_the_attention(changed, monkeypatch):
    done = []
    monkeypatch.setattr(reproduce, "reproduce", lambda *arguments: done.append(arguments))
    assert cli.main(["reproduce", "synthetic"]) == 0
    assert cli.main(["reproduce", "synthetic", "relu", "average"]) == 0
    assert [(experiment.attention, stages) for experiment, stages in done] == [
        ("rela_i", ["train", "score"]),
        ("relu", ["average"]),
    ]


def test_the_stage_average_uses_the_default_number_of_checkpoints(changed, monkeypatch, tmp_path):
    done = []
    for module in (averaging, run_stages):
        monkeypatch.setattr(module, "average_last", lambda folder, number, output: done.append(number))
    experiment = Experiment("synthetic", "rela_g", tmp_path)
    with pytest.raises(InputError, match="not trained to its end; run the stage train first"):
        run_stages.average(experiment)
    experiment.run.mkdir(parents=True)
    (experiment.run / "train.json").touch()
    run_stages.average(experiment)
    assert cli.main(["average", "run", "--output", "average.pt"]) == 0
    assert done == [7, 7]


@pytest.mark.parametrize("device, batches", [("cpu", [1, 17]), ("cuda", [1, 65])])
def test_bench_measures_with_the_defaults(device, batches, changed, monkeypatch, tmp_path):
    from fairseq_rela.benchmark import run, shown

    done = []
    monkeypatch.setattr(run, "run", lambda *arguments: done.append(arguments))
    monkeypatch.setattr(shown, "describe_result", str)
    command = ["bench", "--device", device, "--no-figures", "--output", str(tmp_path)]
    trained = ["--data", "d", "--checkpoints", "m.pt"]
    assert cli.main(command) == cli.main([*command, *trained]) == 0
    assert cli.main([*command, *trained, "--quick"]) == cli.main([*command, "--data", "d"]) == 0
    assert [arguments[3] for arguments in done] == [["core", "flops"], ["decoding"], ["decoding"], ["training"]]
    decode, quick, real = done[1][6], done[2][6], done[3][7]
    assert (decode.batches, decode.rounds, decode.sentences, decode.decoding.beam) == (batches, 4, None, 9)
    assert (quick.sentences, quick.subset, real.steps) == (21, "valid", 501)
    plans = [arguments[1] for arguments in done]
    lengths = [list(dict.fromkeys(cell.length for cell in plan.cells)) for plan in plans]
    quick_lengths = [17, 33, 100] if device == "cuda" else [18, 33]
    assert lengths == [[17, 33, 100], [17, 33, 100], quick_lengths, [17, 33, 100]] and plans[0].lm[2] == [256, 300]
    assert {cell.length for cell in plans[0].op} == {19}
    assert {cell.length for cell in plans[2].op} == {21 if device == "cuda" else 20}


def test_a_copy_without_defaults_uses_the_shipped_ones(copy):
    shipped = load_defaults("preparation")
    (copy / "defaults" / "preparation.yaml").write_text("merges: 100\n")
    assert load_defaults("preparation") == {**shipped, "merges": 100}
    shutil.rmtree(copy / "defaults")
    assert load_defaults("preparation") == shipped


@pytest.mark.parametrize(
    "content, message",
    [
        ("merge: 100", "preparation.yaml: unknown entry merge; there are tokeniser, "),
        ("merges: many", "preparation.yaml: merges: 'many' is not of the type of the default, 32000"),
        ("merges: true", "preparation.yaml: merges: True is not of the type"),
        ("- 1", "preparation.yaml: not a mapping"),
        ("a: [", "preparation.yaml: not valid YAML"),
    ],
)
def test_wrong_defaults_are_refused_in_one_line(content, message, copy, capsys):
    (copy / "defaults" / "preparation.yaml").write_text(content)
    with pytest.raises(SystemExit) as ended:
        cli.main(["prepare", "--output", "o"])
    error = capsys.readouterr().err
    assert ended.value.code == 2 and message in error and len(error.splitlines()) == 1


def test_the_code_does_not_repeat_defaults_of_the_files():
    """The rooms that use the defaults hold no such numbers, and the tasks hold only values that differ."""
    numbers = [250, 1023, 32000, 4096, "0.6"]
    for room in ("cli", "data", "experiment"):
        for path in (ROOT / "fairseq_rela" / room).glob("*.py"):
            found = re.search(rf"(?<![\w.])({'|'.join(map(str, numbers))})(?![\w.])", path.read_text(encoding="utf-8"))
            assert not found, f"{path}: {found[0]}"
    default = load_defaults("preparation")
    for path in (CONFIGS / "corpus").glob("*.yaml"):
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))["settings"]
        assert [name for name in settings if settings[name] == default.get(name)] == [], path
