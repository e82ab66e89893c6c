"""Wrong command lines and configurations: exit code 2, one line with the fault and its remedy, no files written."""

import copy
import io
import json
import logging
import os
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest
import torch
from conftest import ROOT, run_fairseq, train_arguments

from fairseq_rela import cli, safe_loading
from fairseq_rela.files.records import sha256

USER_DIR = str(ROOT / "fairseq_rela")


@pytest.fixture(scope="module")
def places(corpus, data, trained, tmp_path_factory):
    """Return the paths for the table: a good corpus, data folder and run, and bad ones made from them."""
    folder = tmp_path_factory.mktemp("wrong")

    def data_folder(name, change):
        shutil.copytree(data, folder / name)
        record = json.loads((folder / name / "prepare.json").read_text())
        change(folder / name, record)
        (folder / name / "prepare.json").write_text(json.dumps(record))

    def other_pieces(path, record):
        """Make the data look like another corpus, with a dictionary of equal size."""
        pieces = (path / "dict.xa.txt").read_text().split("\n")
        pieces[0], pieces[5] = pieces[5], pieces[0]
        (path / "dict.xa.txt").write_text("\n".join(pieces))
        record["outputs"]["dict.xa.txt"] = sha256(path / "dict.xa.txt")

    def fewer_pieces(path, record):
        pieces = (path / "dict.xa.txt").read_text().split("\n")
        (path / "dict.xa.txt").write_text("\n".join(pieces[:40]) + "\n")
        record["outputs"]["dict.xa.txt"] = sha256(path / "dict.xa.txt")

    data_folder("other", other_pieces)
    data_folder("fewer", fewer_pieces)
    data_folder("foreign", lambda path, record: record["settings"].update(colour=3))
    data_folder("listed", lambda path, record: record.update(settings=[1]))
    data_folder("unlisted", lambda path, record: record.update(outputs=[1]))
    data_folder("changed", lambda path, record: (path / "bpecodes").write_text("#version: 0.2\na b\n"))
    state = safe_loading.load(trained / "checkpoint_last.pt")
    stranger = copy.deepcopy(state)
    stranger["model"] = {key: value for key, value in state["model"].items() if "decoder.layers.1" not in key}
    torch.save(stranger, folder / "stranger.pt")
    (folder / "torn.pt").write_bytes((trained / "checkpoint_last.pt").read_bytes()[:5000])
    lines = (corpus / "test.xb").read_bytes().split(b"\n")
    (folder / "latin1").write_bytes(b"\n".join([*lines[:7], b"gr\xfc\xdfe", *lines[8:]]))
    (folder / "packed.gz").write_bytes(b"this is not gzip\n")
    (folder / "pieces").write_text("dam@@ ok so@@ lo\n" * 300)
    links = (corpus / "test.align").read_text().splitlines()
    swapped = [" ".join("-".join(f.split("-")[::-1]) for f in line.split()) for line in links]
    (folder / "swapped.align").write_text("\n".join(swapped) + "\n")
    sides = zip((corpus / "test.xa").read_text().split("\n"), (corpus / "test.xb").read_text().split("\n"))
    words = [f"{a} ||| {b}".replace(".", " .") for a, b in sides][:-1]
    (folder / "sentences").write_text("\n".join(words) + "\n")
    (folder / "empty").write_text("")
    (folder / "note.txt").write_text("damok\n")
    for name, content in (("listed-run", [1, 2]), ("foreign-run", {"data": "thesis"})):
        (folder / name).mkdir()
        (folder / name / "train.json").write_text(json.dumps(content))
    shutil.copy(trained / "checkpoint_last.pt", folder / "listed-run" / "model.pt")
    (folder / "thesis").mkdir()
    (folder / "thesis" / "main.tex").write_text("x")
    return {
        "F": folder,
        "raw": corpus,
        "data": data,
        "run": trained,
        "last": trained / "checkpoint_last.pt",
        "user": USER_DIR,
    }


PREPARE = "prepare -s xa -t xb --train {raw}/train --valid {raw}/valid --test {raw}/test"
RANK = "rank {last} {raw}/test.xa {raw}/test.xb --data {data} --output {O}/ranked"
TRANSLATE = "translate {data} --checkpoint {last} --output {O}/out"
TRAIN = "train synthetic --data {data} --save-dir {O}/run"
SCORE = "score --hypotheses {raw}/test.xa --reference {raw}/test.xb -t xb"

RELA = [
    # files that are missing or of the wrong kind
    (PREPARE.replace("{raw}/test", "{raw}/nothere") + " --output {O}/d", "nothere.xa: no such file (the test set)"),
    (PREPARE.replace("{raw}/train", "{raw}/train.xa") + " --output {O}/d", "train.xa.xa: no such file"),
    (PREPARE + " --output {F}/thesis", "thesis exists and was not made by `rela prepare`"),
    (PREPARE + " --output {data}", "was prepared from other files or settings; remove it or choose another folder"),
    (PREPARE + " --output {F}/empty/sub", "cannot be made"),
    (SCORE.replace("{raw}/test.xb", "{F}/latin1"), "latin1, line 8: not UTF-8 (invalid start byte); convert"),
    (SCORE.replace("{raw}/test.xb", "{F}/packed.gz"), "packed.gz: damaged or truncated gz file"),
    (SCORE.replace("{raw}/test.xb", "{raw}"), "cannot be read (Is a directory)"),
    (SCORE.replace("{raw}/test.xb", "{raw}/valid.xb"), "300 hypotheses, 200 lines of reference"),
    (SCORE.replace("{raw}/test.xb", "{F}/pieces"), "the reference holds BPE pieces; give the raw text"),
    (SCORE + " --output {F}/thesis", "thesis: a folder; give the name of a file to write"),
    (SCORE.replace("-t xb", "-t ../xb"), "--target-lang '../xb': give a language code such as en"),
    (SCORE + " --tokeniser spacy", "--tokeniser spacy: choose one of moses, none"),
    (TRANSLATE + " --input {F}/nothere", "nothere: cannot be read (No such file or directory)"),
    (TRANSLATE + " --input {F}/empty", "empty: no lines to translate"),
    (TRANSLATE + " --input {F}/latin1", "latin1, line 8: not UTF-8"),
    (
        TRANSLATE.replace("{O}/out", "{F}/note") + " --input {F}/note.txt",
        "note.txt is an input and would be overwritten",
    ),
    (SCORE + " --output {raw}/test.xb", "test.xb is an input and would be overwritten; choose another name"),
    ("attention {last} --data {data} --output {last}", "is an input and would be overwritten"),
    (TRANSLATE + " --subset dev", "dev.xa-xb.xa.idx: cannot be read"),
    ("attention {last} --data {data} --subset dev", "no subset 'dev'"),
    ("attention {last} --data {F}/nowhere", "nowhere: no such folder of binarised data"),
    ("average {raw} --output {O}/a.pt", "no checkpoint_*.pt in it; has the model been trained?"),
    ("average {run} --last 50 --output {O}/a.pt", "50 checkpoints are wanted, 4 are there"),
    ("average --inputs {raw}/test.xa --output {O}/a.pt", "test.xa: not a checkpoint, or a damaged one; use another"),
    ("average --inputs {F}/torn.pt --output {O}/a.pt", "torn.pt: not a checkpoint, or a damaged one"),
    ("average --inputs {last} {last} --output {O}/a.pt", "is given 2 times; give each checkpoint once"),
    ("average --inputs {last} {F}/stranger.pt --output {O}/a.pt", "hold the same update 8; give each state once"),
    # swapped sides
    (RANK.replace("{raw}/test.xa {raw}/test.xb", "{raw}/test.xb {raw}/test.xa"), "test.xb ends in .xb, and text of xa"),
    (RANK.replace("{raw}/test.xb", "{raw}/test.xa"), "test.xa ends in .xa, and text of xb belongs here"),
    (RANK.replace("test.xa {raw}/test.xb", "test.align {raw}/test.align"), "is given for both sides; give the source"),
    (RANK + " --damage --seed x", "argument --seed: invalid int value: 'x'"),
    (
        RANK.replace("{raw}/test.xa {raw}/test.xb", "{raw}/test.xb {raw}/test.xa") + " --damage",
        "are the two sides swapped?",
    ),
    (TRANSLATE + " --input {raw}/test.xb", "test.xb ends in .xb, and text of xa belongs here"),
    (
        "aer {F}/swapped.align {raw}/test.align --gold-base 0 --sentences {F}/sentences",
        "is outside of the sentences of",
    ),
    ("analyze {last} --data {data} --output {O}/a --gold {F}/swapped.align", "which side comes first"),
    ("analyze {last} --data {data} --output {O}/a --gold {raw}/test.align --gold-base 1", "count from 0 or 1"),
    # unknown names
    (TRAIN + " --attention relax", "relax: no such variant; choose one of softmax, sparsemax"),
    (TRAIN.replace("synthetic", "wmt15_en_de"), "no task 'wmt15_en_de'; there are multi30k_en_de"),
    (TRAIN + " --override size=huge", "no config 'huge'"),
    (TRAIN + " --override checkpoint.restore_file={F}/none.pt", "none.pt: no such checkpoint"),
    (
        TRAIN.replace("{data}", "{F}/other") + " --override checkpoint.finetune_from_model={last}",
        "with another dict.xa",
    ),
    ("reproduce synthetic rela_g --choose train=all", "synthetic has no such choice; it offers none"),
    ("reproduce ../configs/synthetic rela_g", "no task '../configs/synthetic'"),
    ("reproduce synthetic rela_g prepare --raw {F}/nowhere --root {O}/e", "nowhere: no such folder"),
    (PREPARE + " --output {O}/d --tokeniser spacy", "--tokeniser spacy: choose one of moses, none"),
    (
        PREPARE + " --output {O}/d --moses {F}",
        "no such script; give the folder of a checkout of moses-smt",
    ),
    (PREPARE + " --output {O}/d --moses {F} --workers 2", "no such script; give the folder of a checkout"),
    ("prepare --colour red --output {O}/d", "unrecognized arguments: --colour red; see rela --help"),
    ("transcribe x", "invalid choice: 'transcribe'"),
    # types and sizes
    (PREPARE + " --output {O}/d --merges many", "argument --merges: invalid int value: 'many'"),
    (PREPARE + " --output {O}/d --vocabulary-threshold 99999 --merges 9", "lower --vocabulary-threshold"),
    (PREPARE + " --output {O}/d --max-ratio nan", "--max-ratio nan: must be a number of at least 1"),
    (PREPARE + " --output {O}/d --max-tokens 0", "--max-tokens 0: must be a whole number of at least 1"),
    (PREPARE + " --output {O}/d --workers two", "argument --workers: two: give a number of at least 1"),
    (PREPARE + " --output {O}/a:b", "fairseq splits paths at a colon; use a path without one"),
    (PREPARE + " --output {O}/${{HOME}}", "configurations have variables in ${}; use a path without them"),
    (PREPARE + " --output /", "/ exists and was not made by `rela prepare`"),
    (PREPARE.replace("-t xb", "-t xa") + " --output {O}/d", "source and target language are both xa"),
    (RANK + " --keep-best 2.5", "argument --keep-best: 2.5: give a number of at least 1"),
    (RANK + " --max-null-rate 2", "--max-null-rate 2.0: give a number from 0 to 1"),
    (RANK.replace("{O}/ranked", "."), "--output .: give the name of a file to write"),
    (RANK.replace("{O}/ranked", "{data}"), "exists and was not made by `rela rank`; choose another --output"),
    (RANK.replace("{O}/ranked", "{raw}/test.xa"), "is an input and would be overwritten; choose another name"),
    (RANK.replace("{O}/ranked", "{last}"), "is an input and would be overwritten; choose another name"),
    (RANK.replace("{O}/ranked", "{raw}/test.xa") + " --damage", "is an input and would be overwritten"),
    (RANK.replace("{O}/ranked", "{last}") + " --damage", "is an input and would be overwritten"),
    (TRANSLATE + " --max-len-a inf", "--max-len-a inf: give a number"),
    (TRANSLATE + " --beam 0", "--beam 0: give a number of at least 1"),
    ("synthetic {O}/s --pairs many", "argument --pairs: invalid int value: 'many'"),
    ("analyze {last} --data {data} --output {O}/a --examples -1", "--examples -1: give a number of at least 0"),
    # models and data that do not match
    (TRANSLATE.replace("{data}", "{F}/other"), "was trained with another dict.xa.txt than that of"),
    (RANK.replace("{data}", "{F}/other"), "was trained with another dict.xa.txt than that of"),
    ("attention {last} --data {F}/other", "was trained with another dict.xa.txt than that of"),
    ("analyze {last} --data {F}/fewer --output {O}/a", "was trained with another dict.xa.txt than that of"),
    ("attention {F}/stranger.pt --data {data}", "does not fit"),
    (RANK.replace("{last}", "{raw}/test.align"), "test.align: not a checkpoint, or a damaged one"),
    (RANK.replace("{data}", "{F}/changed"), "bpecodes is missing or has changed since it was prepared"),
    (RANK.replace("{data}", "{F}/foreign"), "prepare.json: not a record of `rela prepare`, or of another version"),
    (TRANSLATE.replace("{data}", "{F}/listed"), "prepare.json: not a record of `rela prepare`"),
    (TRAIN.replace("{data}", "{F}/unlisted"), "prepare.json: not a record of `rela prepare`"),
    (TRAIN.replace("{O}/run", "{run}"), "holds checkpoints that `rela train` did not make; train elsewhere"),
    (
        TRAIN.replace("{O}/run", "{F}/listed-run"),
        "train.json: not a record of this package, which is a JSON object; move it away",
    ),
    (TRAIN.replace("{O}/run", "{F}/foreign-run"), "was trained with other task"),
    (RANK.replace("{last}", "{F}/listed-run/model.pt").replace("{data}", "{F}/other"), "with another dict.xa.txt"),
    (TRAIN.replace("{O}/run", "/"), "/: not the name of a file or folder that can be trained; give another"),
]


def tree(folder):
    """Return every file under a folder with its size."""
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command, words", RELA, ids=lambda text: text[:70])
def test_wrong_rela_commands_give_one_line_and_write_no_files(command, words, places, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = {name: tree(places[name]) for name in ("F", "raw", "data", "run")}
    try:
        code = cli.main(command.format(**places, O=tmp_path).split())
    except SystemExit as error:  # argparse
        code = error.code
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if not line.startswith("warning: ")]
    assert code == 2 and len(lines) == 1, error
    assert words in lines[0] and lines[0].startswith("rela")
    assert {name: tree(places[name]) for name in before} == before
    assert not [path for path in tree(tmp_path) if path.suffix not in (".log", ".json")]


def test_the_tables_have_at_least_40_cases():
    assert len(RELA) + len(FAIRSEQ) >= 40


# --- fairseq's own commands with the plugin ----------------------------------------------------------------------

GENERATE = "generate {data} --user-dir {user} --task translation_rela --path {last}"
FAIRSEQ_TRAIN = "train {data} --user-dir {user} --task translation_rela --arch transformer_rela_tiny --cpu"
FAIRSEQ_TRAIN += " --optimizer adam --lr 1e-3 --max-tokens 1000 --max-update 1 --disable-validation --save-dir {O}/run"
INTERACTIVE = "interactive {data} --user-dir {user} --task translation_rela --path {last} -s xa -t xb --bpe rela_bpe"

FAIRSEQ = [
    (FAIRSEQ_TRAIN + " --attention relax", "--attention relax: no such variant; choose one of"),
    (FAIRSEQ_TRAIN + " --attention-sites cross,foo", "no such site 'foo'; give one or more of encoder,decoder,cross"),
    (FAIRSEQ_TRAIN + " --encoder-layers 0", "--encoder-layers 0: give a whole number of at least 1"),
    (FAIRSEQ_TRAIN + " --encoder-embed-dim 130", "--encoder-attention-heads 4 does not divide --encoder-embed-dim 130"),
    (FAIRSEQ_TRAIN + " --dropout 1.5", "--dropout 1.5 is not a probability below 1"),
    (FAIRSEQ_TRAIN.replace("{data}", "{F}/nowhere"), "nowhere: no such folder of binarised data"),
    (FAIRSEQ_TRAIN.replace("{data}", "{F}/thesis"), "do not tell the languages; give --source-lang and --target-lang"),
    (FAIRSEQ_TRAIN + " -s xa -t xz", "no dict.xz.txt; it has dict.xa.txt, dict.xb.txt"),
    (FAIRSEQ_TRAIN + " -s xb", "holds xa-xb; give both languages"),
    (FAIRSEQ_TRAIN + " -s xa -t xa", "source and target language are both xa"),
    (FAIRSEQ_TRAIN + " --train-subset training", "no subset 'training' of xa-xb"),
    (FAIRSEQ_TRAIN + " --decoder-layers 3 --restore-file {last}", "the checkpoint does not fit the model (Missing key"),
    (FAIRSEQ_TRAIN + " --restore-file {raw}/test.xa", "test.xa: not a checkpoint, or a damaged one; use another"),
    (FAIRSEQ_TRAIN.replace("{data}", "{F}/other") + " --restore-file {last}", "was trained with another dict.xa.txt"),
    (FAIRSEQ_TRAIN.replace("{data}", "{F}/other") + " --finetune-from-model {last}", "with another dict.xa.txt than"),
    (GENERATE + " --gen-subset dev", "no subset 'dev' of xa-xb"),
    (GENERATE + " -s xb -t xa", "translates xa to xb, not the other way; swap the two languages"),
    (GENERATE.replace("{data}", "{F}/other"), "was trained with another dict.xa.txt than that of"),
    (GENERATE.replace("{data}", "{F}/fewer"), "was trained with another dict.xa.txt than that of"),
    (GENERATE + " --gnmt-lenpen 0.6 --lenpen 0.5", "--gnmt-lenpen replaces --lenpen and --unnormalized"),
    (GENERATE.replace("{last}", "{F}/torn.pt"), "torn.pt: not a checkpoint, or a damaged one; use another"),
    (GENERATE.replace("{last}", "{F}/stranger.pt"), "the checkpoint does not fit the model (Missing key"),
    (INTERACTIVE, "--bpe rela_bpe needs --bpe-codes DATA/bpecodes"),
    (INTERACTIVE + " --bpe-codes {F}/nowhere/bpecodes", "nowhere: no prepare.json, so this is not a data folder"),
    (INTERACTIVE + " --tokenizer rela_moses --prepared {F}/thesis", "thesis: no prepare.json"),
]


@pytest.fixture
def quiet():
    """Restore the logging of the process, which fairseq's commands change."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def fairseq(command, monkeypatch):
    """Run a command of fairseq in this process; return its exit code and standard error."""
    import fairseq_cli.generate
    import fairseq_cli.interactive
    import fairseq_cli.train  # noqa: F401

    module, *arguments = command.split()
    monkeypatch.setattr(sys, "argv", [f"/usr/bin/fairseq-{module}", *arguments])
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = sys.modules[f"fairseq_cli.{module}"].cli_main() or 0
        except SystemExit as error:
            code = error.code
    return code, err.getvalue()


SOME = [pytest.param(*row, marks=pytest.mark.slow if i % 3 else ()) for i, row in enumerate(FAIRSEQ)]


@pytest.mark.parametrize("command, words", SOME, ids=lambda text: text[:70])
def test_wrong_fairseq_commands_give_one_line(command, words, places, tmp_path, monkeypatch, quiet):
    monkeypatch.chdir(tmp_path)
    code, error = fairseq(command.format(**places, O=tmp_path), monkeypatch)
    lines = [line for line in error.splitlines() if line.startswith("fairseq_rela: error: ")]
    assert code == 2 and len(lines) == 1 and words in lines[0], error[-2000:]
    assert "Traceback" not in error
    assert not list(tmp_path.rglob("*.pt"))


@pytest.mark.slow
def test_the_right_data_are_accepted_under_any_name(places, tmp_path, monkeypatch, quiet):
    """Right input is accepted: a copy of the data folder, and a checkpoint without a record of its data."""
    shutil.copytree(places["data"], tmp_path / "copy")
    state = safe_loading.load(places["last"])
    assert set(state["task_state"]) == {"translation_rela"}
    state["task_state"] = {}
    torch.save(state, tmp_path / "older.pt")
    for checkpoint in (places["last"], tmp_path / "older.pt"):
        command = GENERATE.format(**{**places, "data": tmp_path / "copy", "last": checkpoint})
        code, error = fairseq(command + " --max-tokens 4000 --beam 1 --results-path " + str(tmp_path), monkeypatch)
        assert code == 0, error[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize(
    "override, words",
    [
        ("model.dropout=[", "OverrideParseException: no viable alternative at input"),
        ("model.encoder_layers=two", "Value 'two' of type 'str' could not be converted to Integer; full_key"),
        ("optimization.lr=fast", "Error merging override optimization.lr=fast"),
        ("model.encoder_layer=3", "Could not override 'model.encoder_layer'."),
        ("model.encoder_attention_heads=3", "--encoder-attention-heads 3 does not divide --encoder-embed-dim 128"),
        ("model.attention_sites=everywhere", "no such site 'everywhere'"),
        ("+task.source_lang=xz", "holds xa-xb; give both languages"),
    ],
)
def test_wrong_overrides_of_hydra_give_one_line(override, words, places, tmp_path, capsys):
    """Hydra runs in another process, as in `rela train`; the line has Hydra's message and the log."""
    command = (TRAIN + " --override " + override).format(**places, O=tmp_path)
    assert cli.main(command.split()) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("warning: ")]
    assert len(error) == 1 and words in error[0] and "(log: " in error[0]
    assert not list(tmp_path.rglob("*.pt"))


@pytest.mark.slow
def test_fairseqs_commands_in_their_own_process_give_one_line(places, tmp_path):
    for arguments, words in (
        (["train", *train_arguments(places["data"], tmp_path), "--attention", "relax"], "no such variant"),
        (["validate", places["F"] / "other", "--user-dir", USER_DIR, "--path", places["last"]], "another dict.xa.txt"),
    ):
        if arguments[0] == "validate":
            arguments += ["--task", "translation_rela", "--valid-subset", "valid", "--max-tokens", 1000]
        result = run_fairseq(*arguments, cwd=tmp_path)
        lines = [line for line in result.stderr.splitlines() if line.startswith("fairseq_rela: error: ")]
        assert result.returncode == 2 and len(lines) == 1 and words in lines[0], result.stderr[-2000:]
        assert "Traceback" not in result.stderr


def test_languages_that_only_look_swapped_are_accepted(tmp_path):
    """File names without a language, or with one as part of a word, do not show the side."""
    from fairseq_rela.data.settings import refuse_other_side

    for name in ("corpus", "corpus.de-en", "corpus.en", "en.de.gz.txt", "xde", os.fspath(tmp_path / "x.de" / "y")):
        refuse_other_side(tmp_path / name, "en", "de")
