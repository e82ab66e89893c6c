"""The command line: quick start, and one line with exit code 2 for every error."""

import argparse
import shlex
import sys
import time
from pathlib import Path

import pytest
from conftest import RELA, run, run_rela

from fairseq_rela import cli
from fairseq_rela.cli import ranking
from fairseq_rela.files.configs import load_defaults


def test_help_is_quick_and_imports_no_large_libraries():
    code = (
        "import sys; sys.argv = ['rela', '--help']\n"
        "from fairseq_rela.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'fairseq', 'numpy', 'sacrebleu', 'sacremoses', 'hydra', 'requests', 'jieba', 'yaml'}\n"
        "heavy |= {'matplotlib', 'triton', 'entmax', 'tqdm', 'omegaconf', 'subword_nmt'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    start = time.monotonic()
    result = run(sys.executable, "-c", code)
    assert result.stderr.strip() == "[]" and "prepare" in result.stdout
    assert time.monotonic() - start < 5  # half a second on an idle machine


def test_the_plugin_imports_only_what_fairseq_needs_to_start():
    code = (
        "import sys, fairseq_cli.train\n"
        "before = set(sys.modules)\n"
        "import fairseq_rela\n"
        "from fairseq.data.encoders import TOKENIZER_REGISTRY\n"
        "heavy = {'sacremoses', 'jieba', 'matplotlib', 'triton', 'requests', 'sacrebleu', 'submitit'}\n"
        "assert 'rela_moses' in TOKENIZER_REGISTRY\n"
        "print(sorted(heavy & (set(sys.modules) - before)))"
    )
    result = run(sys.executable, "-W", "ignore", "-c", code)
    assert result.stdout.splitlines()[-1] == "[]", result.stderr


@pytest.mark.skipif(sys.version_info < (3, 10), reason="Python tells what -m runs from 3.10 on")
def test_help_of_the_module_imports_no_large_libraries():
    result = run(sys.executable, "-X", "importtime", "-m", "fairseq_rela.cli", "--help")
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert result.returncode == 0 and "prepare" in result.stdout
    assert "argparse" in imported and not imported & {"torch", "fairseq", "numpy", "fairseq_rela.compat"}
    # in any other program the import registers the plugin with fairseq
    code = "import fairseq_rela; from fairseq.models import MODEL_REGISTRY; print('transformer_rela' in MODEL_REGISTRY)"
    assert run(sys.executable, "-W", "ignore", "-c", code, "fairseq_rela.cli").stdout.strip() == "True"


def test_without_a_verb_the_help_is_printed(capsys):
    assert cli.main([]) == 0
    assert "VERB" in capsys.readouterr().out


WRONG = [
    (["average"], "--output"),
    (["average", "nowhere", "--output", "o.pt"], "nowhere: no such folder"),
    (["average", "--output", "o.pt"], "give the folder of a run, or --inputs"),
    (["average", "x", "--inputs", "y", "--output", "o.pt"], "one of them"),
    (["average", "--inputs", "absent.pt", "--output", "o.pt"], "absent.pt: no such checkpoint"),
    (["prepare", "--output", "o"], "give --source-lang and --target-lang, or --config"),
    (["prepare", "--config", "synthetic", "--output", "o"], "--config needs --raw"),
    (["prepare", "--config", "wmt99", "--raw", ".", "--output", "o"], "no task 'wmt99'"),
    (
        ["prepare", "--config", "wmt14_en_de", "--choose", "a=b", "--raw", ".", "--output", "o"],
        "it offers train, valid",
    ),
    (["prepare", "-s", "en", "-t", "de", "--remove-diacritics", "--output", "o"], "is for Romanian"),
    (["prepare", "-s", "en", "-t", "de", "--tokenised", "dev", "--output", "o"], "--tokenised dev: choose one of"),
    (["prepare", "-s", "en", "-t", "de", "--max-pieces", "5000", "--output", "o"], "have room for 1023"),
    (["rank", "x.pt", "a", "b", "--data", "d", "--output", "o"], "d: no prepare.json, so this is not a data folder"),
    (["rank", "x.pt", "a", "b", "--data", "d", "--output", "o", "--keep-best", "0"], "at least 1"),
    (["rank", "x", "a", "b", "--data", "d", "--output", "o", "--damage", "--keep-best", "5"], "it keeps nothing"),
    (["report"], "RUN"),
    (["report", "nowhere"], "nowhere: no such run folder"),
    (["report", ".", "--output", "page.pdf"], "page.pdf: give the name of an HTML file"),
    (["download", "wmt99"], "no task 'wmt99'"),
    (["download", "synthetic"], "synthetic has no downloads; `rela reproduce` generates its text"),
    (["download", "wmt14_en_de", "--choose", "train=google"], "choose one of train=statmt, train=stanford"),
    (["download", "wmt16_ro_en", "--offline", "nowhere"], "nowhere: no such folder"),
    (["reproduce", "wmt16_ro_en", "rela_g", "prepare"], "run the stages download and extract first"),
    (["prepare", "-s", "en", "-t", "de", "--output", "o"], "no files for the train set; give --train"),
    (["prepare", "-s", "en", "-t", "de", "--output", "o", "--workers", "0"], "at least 1"),
    (["score", "--hypotheses", "absent", "--reference", "absent", "-t", "de"], "absent: cannot be read"),
    (["translate", "nowhere", "--checkpoint", "x.pt", "--output", "o"], "nowhere: no prepare.json"),
    (["translate", "d", "--checkpoint", "x", "--output", "o", "--beam", "0"], "--beam 0"),
    (["translate", "d", "--checkpoint", "x", "--output", "o", "--lenpen", "1", "--gnmt-lenpen", "1"], "not allowed"),
    (["train", "synthetic", "--attention", "relu2", "--data", "d", "--save-dir", "s"], "no such variant"),
    (["train", "wmt99", "--data", "d", "--save-dir", "s"], "no task 'wmt99'"),
    (["train", "synthetic", "--data", "nowhere", "--save-dir", "s"], "not a data folder of `rela prepare`"),
    (["reproduce", "wmt99"], "no task 'wmt99'"),
    (["reproduce", "synthetic", "relu2"], "no such variant"),
    (["reproduce", "synthetic", "rela_g", "bake"], "no stage 'bake'"),
    (["reproduce", "multi30k_en_de", "rela_g", "prepare"], "needs --raw FOLDER"),
    (["reproduce", "synthetic", "rela_g", "translate"], "run the stage average first"),
    (["synthetic", "o", "--pairs", "0"], "--pairs 0"),
    (["reproduce", "synthetic", "prepare", "train"], "give the attention before the stages"),
    (["prepare", "--config", "synthetic", "--raw", ".", "-s", "xb", "--output", "o"], "leave --source-lang out"),
    (["prepare", "-s", "en", "-t", "de", "--raw", ".", "--output", "o"], "--raw and --choose go with --config"),
    (["reproduce", "synthetic", "rela_g", "--override", "run"], "--override run: give KEY=VALUE"),
    (["reproduce", "synthetic", "rela_g", "--override", "run=gpu3"], "no config 'gpu3' in"),
    (["train", "synthetic", "--data", "d", "--save-dir", "s", "--override", "task.data=x"], "give --data instead"),
    (["train", "synthetic", "--data", "d", "--save-dir", "s", "--override", "++model.attention=x"], "--attention"),
    (["train", "synthetic", "--data", "d", "--save-dir", "s", "--override", "model._name=lstm"], "not a model of this"),
    (["translate", "d", "--checkpoint", "x", "--output", "o", "--gnmt-lenpen", "nan"], "--gnmt-lenpen nan"),
    (["bake"], "invalid choice: 'bake'"),
]


@pytest.mark.parametrize("arguments, message", WRONG, ids=lambda a: " ".join(a) if isinstance(a, list) else None)
def test_wrong_arguments_give_one_line_and_exit_code_2(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        code = cli.main(arguments)
    except SystemExit as error:  # argparse
        code = error.code
    error = capsys.readouterr().err.strip()
    assert code == 2 and message in error.splitlines()[-1]
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


def test_the_command_works_with_closed_output(tmp_path):
    command = " ".join(shlex.quote(str(part)) for part in (*RELA, "synthetic", tmp_path / "raw", "--pairs", "30"))
    result = run("bash", "-c", command + " >&-")
    assert result.returncode == 0 and "Traceback" not in result.stderr
    assert (tmp_path / "raw" / "train.xa").is_file()


def test_the_command_scores_segmented_hypotheses(tmp_path):
    (tmp_path / "hyp").write_text("das ist gu@@ t &quot; .\nja@@ wohl .\n")
    (tmp_path / "ref").write_text('das ist gut".\njawohl.\n')
    arguments = ["score", "--hypotheses", tmp_path / "hyp", "--reference", tmp_path / "ref", "-t", "de"]
    result = run_rela(*arguments, "--output", tmp_path / "score.json")
    assert result.returncode == 0, result.stderr
    assert "sacreBLEU 100.00" in result.stdout and "tok:13a" in result.stdout
    assert '"signature"' in (tmp_path / "score.json").read_text()


@pytest.mark.parametrize(
    "words",
    [
        "synthetic relu score translate --root X --override a=1",
        "synthetic relu --root X score --override a=1 translate",
        "--root X synthetic --override a=1 relu score translate",
        "--override a=1 --root X synthetic relu score translate",
    ],
)
def test_stages_may_come_before_between_and_after_options(words):
    options = cli.build_parser().parse_args(["reproduce", *words.split()])
    assert (options.task, options.attention, options.stages) == ("synthetic", "relu", ["score", "translate"])
    assert options.root == Path("X") and options.override == ["a=1"]


def test_the_help_lists_the_stages_of_the_chain():
    from fairseq_rela.experiment.reproduce import RUN, STAGES

    assert tuple(load_defaults("experiment")["stages"]) == STAGES == tuple(RUN)


def test_choices_of_an_option_equal_those_of_its_module():
    from fairseq_rela.analysis.orders import DEFAULT_BY, ORDERS
    from fairseq_rela.benchmark.run import PARTS

    parser = argparse.ArgumentParser()
    ranking._rank_options(parser)
    (by,) = (action for action in parser._actions if action.dest == "by")
    assert (tuple(by.choices), by.default) == (ORDERS, DEFAULT_BY)
    assert tuple(load_defaults("bench")["parts"]) == PARTS


def test_download_list_prints_names_and_addresses(capsys):
    assert cli.main(["download", "wmt18_zh_en", "--list"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert {row[0] for row in rows} >= {"wmt18-test", "uncorpus-v1-en-zh", "cwmt-neu2017"}
    assert max(map(len, rows)) == 3  # the archive with two parts
    assert all(url.startswith("http") for row in rows for url in row[1:])
