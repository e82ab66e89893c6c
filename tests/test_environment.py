"""Other environments: any folder, unusual paths, read-only data, no terminal, no network, installed or not."""

import ctypes
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import RELA, ROOT, run, run_fairseq, run_rela

from fairseq_rela import cli
from fairseq_rela.corpora.synthetic import write_corpus
from fairseq_rela.data.folder import DataFolder
from fairseq_rela.errors import InputError
from fairseq_rela.files.commands import run_fairseq as run_fairseq_logged
from fairseq_rela.files.records import read_json, sha256, write_json

ODD = 'a folder\'s "own", ä=中 [1] {x} $HOME %s &'

# on the path of every process: records attempted connections and refuses them
NO_NETWORK = """
import os, socket
def refuse(self, address, *_):
    if self.family in (socket.AF_INET, socket.AF_INET6):
        with open(os.environ["WENT_OUT"], "a") as file:
            file.write(repr(address) + "\\n")
        raise OSError("no network")
    return connect(self, address)
connect = socket.socket.connect
socket.socket.connect = socket.socket.connect_ex = refuse
"""


@pytest.fixture
def bare(tmp_path):
    """Yield an environment with its own HOME and temporary folder, and without a network."""
    for name in ("home", "here", "site"):
        (tmp_path / name).mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(NO_NETWORK)
    # a short path: data loaders make sockets below TMPDIR and hang forever if a path has more than 107 characters
    short = tempfile.mkdtemp(prefix="t")
    yield {
        "HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": str(tmp_path / "home" / "cache"),
        "TMPDIR": short,
        "WENT_OUT": str(tmp_path / "went-out"),
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(ROOT)]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    shutil.rmtree(short)


def ok(result):
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    return result


def tree(folder):
    """Return every file under a folder with its checksum."""
    return {str(path.relative_to(folder)): sha256(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def prepare_arguments(raw, output, *options):
    files = [part for split in ("train", "valid", "test") for part in (f"--{split}", raw / split)]
    return ["prepare", "-s", "xa", "-t", "xb", *files, "--output", output, "--merges", 60, *options]


SMALL = ("--vocabulary-threshold", 2, "--workers", 2)


@pytest.mark.slow
def test_unusual_folders_without_terminal_or_network_leave_no_files(bare, tmp_path):
    """The command runs in another folder with relative paths, in an encoding without their letters."""
    raw = tmp_path / "here" / ODD / "raw"
    write_corpus(raw, train_pairs=60)
    before = tree(raw)
    here = {**bare, "PYTHONIOENCODING": "ascii", "PYTHONHASHSEED": "random"}
    arguments = prepare_arguments(Path(ODD, "raw"), Path(ODD, "my data"), *SMALL)
    result = ok(run_rela(*arguments, cwd=tmp_path / "here", env=here))
    assert result.stderr == "" and "\r" not in result.stdout and "\x1b" not in result.stdout
    score = [
        "score",
        "--hypotheses",
        Path(ODD, "raw", "test.xb"),
        "--reference",
        Path(ODD, "raw", "test.xb"),
        "-t",
        "xb",
    ]
    ok(run_rela(*score, "--output", Path(ODD, "scores", "s.json"), cwd=tmp_path / "here", env=here))
    assert sorted(p.name for p in (tmp_path / "here" / ODD).iterdir()) == ["my data", "raw", "scores"]
    assert tree(raw) == before
    assert not list(Path(bare["TMPDIR"]).iterdir()) and not list((tmp_path / "home").iterdir())
    assert not (tmp_path / "went-out").exists()


@pytest.mark.slow
def test_any_hash_seed_gives_the_same_bytes(bare, corpus, tmp_path):
    """Sets of text have another order with each seed."""
    made = []
    for seed in ("1", "random"):
        output = tmp_path / f"data{seed}"
        options = (*SMALL, "--truecase", "--remove-duplicates")
        ok(run_rela(*prepare_arguments(corpus, output, *options), env={**bare, "PYTHONHASHSEED": seed}))
        made.append(tree(output))
    assert made[0] == made[1] and len(made[0]) > 20


@pytest.mark.slow
def test_file_names_that_are_not_utf8_are_accepted(tmp_path, capsys):
    """Old disks have such names."""
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/gr\xfc\xdfe")
    raw = Path(folder)
    write_corpus(raw, train_pairs=60)
    for split in ("train", "valid", "test"):
        for lang in ("xa", "xb"):
            (raw / f"{split}.{lang}").rename(os.path.join(folder, os.fsdecode(split.encode() + b"\xff.") + lang))
    splits = [
        (f"--{split}", os.path.join(folder, os.fsdecode(split.encode() + b"\xff")))
        for split in ("train", "valid", "test")
    ]
    arguments = [part for pair in splits for part in pair]
    command = ["prepare", "-s", "xa", "-t", "xb", *arguments, "--output", str(raw / "data"), "--merges", "9"]
    for _ in range(2):  # made, and then reused
        assert cli.main([*command, "--vocabulary-threshold", "1", "--workers", "1"]) == 0
    assert os.fsdecode(b"train\xff.xa") in DataFolder(raw / "data").record["inputs"]["train"]
    assert json.loads((raw / "data" / "prepare.json").read_text(encoding="utf-8"))
    assert "already prepared" in capsys.readouterr().out
    with pytest.raises(InputError, match="failed with exit code"):
        run_fairseq_logged("preprocess", [os.path.join(folder, "x")], raw / "log")


def test_json_keeps_any_text(tmp_path):
    value = {"a\udcff": ["\ud800", "ä\u2028", "\\udcff", '"', "\x00"]}
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == value


# --- read-only folders -------------------------------------------------------------------------------------------


def without_privileges():
    """Drop the rights of root to write anywhere, for this process and its children."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def run_as_user(*arguments, **options):
    env = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    return subprocess.run(
        [*map(str, RELA), *map(str, arguments)],
        preexec_fn=without_privileges,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=env,
        timeout=600,
        **options,
    )


@pytest.fixture
def read_only():
    """Return a function that makes folders read-only until the test ends."""
    changed = []

    def make(folder):
        for path in [folder, *folder.rglob("*")]:
            changed.append((path, path.stat().st_mode))
            path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
        code = "import sys, os; sys.exit(os.access(sys.argv[1], os.W_OK))"
        probe = subprocess.run([sys.executable, "-c", code, str(folder)], preexec_fn=without_privileges)
        if probe.returncode:
            pytest.skip("everything can be written here")

    yield make
    for path, mode in changed:
        path.chmod(mode)


@pytest.mark.slow
def test_read_only_data_and_models_can_be_used(bare, corpus, data, trained, tmp_path, read_only):
    for name, folder in (("raw", corpus), ("data", data), ("run", trained)):
        shutil.copytree(folder, tmp_path / name)
        read_only(tmp_path / name)
    raw, prepared, model = tmp_path / "raw", tmp_path / "data", tmp_path / "run" / "checkpoint_last.pt"
    env = {key: bare[key] for key in ("HOME", "TMPDIR")}
    here = {"cwd": tmp_path / "here", "env": env}
    for arguments in (
        prepare_arguments(raw, Path("d"), *SMALL),
        ["rank", model, raw / "test.xa", raw / "test.xb", "--data", prepared, "--output", "ranked", "--workers", 1],
        ["attention", model, "--data", prepared, "--output", "attention.json"],
        ["average", tmp_path / "run", "--last", 2, "--output", "average.pt"],
        ["score", "--hypotheses", prepared / "text" / "test.xb", "--reference", raw / "test.xb", "-t", "xb"],
    ):
        ok(run_as_user(*arguments, **here))
    assert not list(Path(bare["TMPDIR"]).iterdir())


@pytest.mark.slow
def test_read_only_data_can_be_translated(bare, data, trained, tmp_path, read_only):
    for name, folder in (("data", data), ("run", trained)):
        shutil.copytree(folder, tmp_path / name)
        read_only(tmp_path / name)
    arguments = [
        "translate",
        tmp_path / "data",
        "--checkpoint",
        tmp_path / "run" / "checkpoint_last.pt",
        "--output",
        "o",
    ]
    env = {key: bare[key] for key in ("HOME", "TMPDIR")}
    ok(run_as_user(*arguments, "--beam", 1, cwd=tmp_path / "here", env=env))
    # Python's multiprocessing in fairseq's data loaders leaves an empty folder if it is killed early
    assert not [path for path in Path(bare["TMPDIR"]).iterdir() if not path.name.startswith("pymp-")]


@pytest.mark.slow
def test_unwritable_folders_give_one_line(corpus, tmp_path, read_only):
    (tmp_path / "locked").mkdir()
    (tmp_path / "secret").write_text("x\n")
    read_only(tmp_path / "locked")
    (tmp_path / "secret").chmod(0)
    locked = tmp_path / "locked"
    score = ["score", "--hypotheses", corpus / "test.xb", "--reference", corpus / "test.xb", "-t", "xb"]
    for arguments, words in (
        (prepare_arguments(corpus, locked / "d", *SMALL), "cannot be made (Permission denied)"),
        ([*score, "--output", locked / "s.json"], "cannot be written (Permission denied)"),
        (["synthetic", locked / "s"], "cannot be written (Permission denied)"),
        (["aer", tmp_path / "secret", corpus / "test.align"], "secret: cannot be read (Permission denied)"),
        (["average", "--inputs", tmp_path / "secret", "--output", tmp_path / "o.pt"], "secret: not a checkpoint"),
    ):
        result = run_as_user(*arguments)
        assert result.returncode == 2 and len(result.stderr.splitlines()) == 1, result.stderr
        assert words in result.stderr


# --- other files are never removed ------------------------------------------------------------------------


@pytest.mark.slow
def test_only_files_of_the_command_are_removed(corpus, data, trained, tmp_path):
    """Other files with similar names in the output folders stay, also where the command fails."""
    mine = tmp_path / "mine"
    mine.mkdir()
    names = ("d.bak", ".d.lock.mine", "d.partial", "x.pt.tmp", "out.txt.old", ".out.json.partial", "ranked.xc", ".keep")
    for name in names:
        (mine / name).write_text(name)
    (mine / ".e.partial.mine").mkdir()
    (mine / ".e.partial.mine" / "thesis").write_text("x")
    before = tree(mine)
    model = trained / "checkpoint_last.pt"
    small = ("--vocabulary-threshold", 2, "--workers", 1)
    for arguments in (
        prepare_arguments(corpus, mine / "d", *small),
        prepare_arguments(corpus, mine / "e", "--vocabulary-threshold", 99999, "--workers", 1),
        ["rank", model, corpus / "test.xa", corpus / "test.xb", "--data", data, "--output", mine / "ranked"],
        ["rank", model, corpus / "test.xa", corpus / "valid.xb", "--data", data, "--output", mine / "other"],
        ["average", trained, "--last", 2, "--output", mine / "x.pt"],
        ["average", trained, "--last", 99, "--output", mine / "y.pt"],
        ["synthetic", mine / "s", "--pairs", 9],
    ):
        assert cli.main(list(map(str, arguments))) in (0, 2)
    after = tree(mine)
    assert {name: after.get(name) for name in before} == before
    # and the failed command has left no files
    assert not (mine / "e").exists() and not (mine / "y.pt").exists() and not (mine / "other").exists()
    assert not [name for name in after if name.startswith(".") and name not in before]


def test_a_link_to_a_folder_is_not_followed_when_something_is_removed(corpus, tmp_path):
    """Partial output of an interrupted run is removed; the target of a link with that name is kept."""
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "main.tex").write_text("x")
    (tmp_path / ".d.partial").symlink_to(tmp_path / "thesis")
    code = cli.main(list(map(str, prepare_arguments(corpus, tmp_path / "d", "--vocabulary-threshold", 2))))
    assert code in (0, 2)
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["main.tex"]


@pytest.mark.slow
def test_the_reader_of_a_pipe_may_close_it(tmp_path):
    """`rela download TASK --list | head -1`"""
    command = " ".join([f"'{part}'" if " " in part or ";" in part else part for part in map(str, RELA[:4])])
    script = f'{command} "$CODE" download wmt14_en_de --list | head -1; exit ${{PIPESTATUS[0]}}'
    result = run("bash", "-c", script, env={"CODE": RELA[4]})
    assert result.returncode == 0 and result.stderr == "" and len(result.stdout.splitlines()) == 1
    # a reader that closes before anything is written
    result = run("bash", "-c", script.replace("head -1", "true"), env={"CODE": RELA[4]})
    assert (result.returncode, result.stderr) == (0, "")


# --- installed ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Install the package by pip from a copy of the checkout, which is then deleted."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(
        ROOT, folder / "copy", ignore=shutil.ignore_patterns(".git", ".venv", "experiments", "tests", "*.pyc")
    )
    target = folder / "site packages"
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    ok(run(*pip, "--target", target, folder / "copy"))
    shutil.rmtree(folder / "copy")
    return target


@pytest.mark.slow
def test_every_file_is_installed(installed):
    for folder, inside in ((ROOT / "fairseq_rela", "fairseq_rela"), (ROOT / "configs", "fairseq_rela/configs")):
        for path in folder.rglob("*"):
            if path.suffix in (".py", ".yaml"):
                there = installed / inside / path.relative_to(folder)
                assert there.is_file() and there.read_bytes() == path.read_bytes(), there


@pytest.mark.slow
def test_the_installed_package_works_from_any_folder(installed, bare, tmp_path):
    """The command, the configs and --user-dir are tested; the checkout is not on the path."""
    env = {**bare, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(installed)])}
    here = tmp_path / "here"
    rela = [sys.executable, "-W", "ignore", installed / "bin" / "rela"]
    ok(run(*rela, "synthetic", "raw", "--pairs", 200, cwd=here, env=env))
    raw = ["--config", "synthetic", "--raw", "raw"]
    ok(run(*rela, "prepare", *raw, "--output", "data", "--merges", 60, cwd=here, env=env))
    overrides = [f"--override={key}" for key in ("optimization.max_update=4", "checkpoint.save_interval_updates=2")]
    ok(run(*rela, "train", "synthetic", "--data", "data", "--save-dir", "a run", *overrides, cwd=here, env=env))
    ok(run(*rela, "average", "a run", "--last", 2, "--output", "a run/average.pt", cwd=here, env=env))
    translate = ["translate", "data", "--checkpoint", "a run/average.pt", "--output", "out", "--beam", 1]
    ok(run(*rela, *translate, cwd=here, env=env))
    user_dir = installed / "fairseq_rela"
    options = ["--task", "translation_rela", "--path", "a run/average.pt", "--beam", 1, "--max-tokens", 2000]
    result = ok(run_fairseq("generate", "data", "--user-dir", user_dir, *options, cwd=here, env=env))
    assert len(re.findall(r"^H-\d+\t", result.stdout, re.M)) == 300
    log = (here / "a run" / "train.log").read_text()
    assert str(user_dir) in log and str(ROOT / "fairseq_rela") not in log
    assert not (tmp_path / "went-out").exists()
    assert not [path for path in Path(bare["TMPDIR"]).iterdir() if "rela" in path.name]
    assert sorted(path.name for path in here.iterdir()) == sorted(
        ["raw", "data", "a run", "out.bpe", "out.tok", "out.txt", "out.log"]
    )


@pytest.mark.slow
def test_training_works_in_a_folder_with_an_unusual_name(bare, corpus, tmp_path):
    """The path passes Hydra's grammar and fairseq's splitting of paths; hash seeds are random, without a network."""
    here = tmp_path / "here" / ODD
    here.mkdir()
    env = {**bare, "PYTHONHASHSEED": "random"}
    ok(run_rela(*prepare_arguments(corpus, Path("my data"), *SMALL), cwd=here, env=env))
    train = [
        "train",
        "synthetic",
        "--data",
        "my data",
        "--save-dir",
        "my run",
        "--override",
        "optimization.max_update=2",
    ]
    result = ok(run_rela(*train, cwd=here, env=env))
    assert "\r" not in result.stdout + result.stderr
    assert (here / "my run" / "checkpoint_last.pt").is_file()
    ok(
        run_rela(
            "translate", "my data", "--checkpoint", "my run/checkpoint_last.pt", "--output", "o", cwd=here, env=env
        )
    )
    assert sorted(path.name for path in here.iterdir()) == ["my data", "my run", "o.bpe", "o.log", "o.tok", "o.txt"]
    assert not (tmp_path / "went-out").exists()
