"""The five WMT tasks from their archives: a local server has small archives of the real form, and faults."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import wmt
import yaml
from conftest import RELA, ROOT, SHARED, run_rela
from fileserver import Fault, FileServer

from fairseq_rela.corpora.extract import extract
from fairseq_rela.errors import InputError
from fairseq_rela.experiment import tasks
from fairseq_rela.experiment.experiment import Experiment
from fairseq_rela.experiment.reproduce import STAGES, reproduce
from fairseq_rela.files.configs import FOLDER_VARIABLE, load_yaml
from fairseq_rela.files.lines import read_lines
from fairseq_rela.files.locks import only_process
from fairseq_rela.files.records import sha256


@pytest.fixture(scope="module")
def server():
    with FileServer(wmt.served(wmt.archives())) as server:
        yield server


@pytest.fixture(scope="module")
def configs(server, tmp_path_factory):
    return wmt.local_configs(tmp_path_factory.mktemp("local") / "configs", server.url("/").rstrip("/"))


@pytest.fixture
def local(configs, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(configs))


def fetched(root, task="wmt14_en_de", **options):
    """Download and extract; return the folder with the raw text."""
    experiment = Experiment(task, "softmax", root, **options)
    reproduce(experiment, ("download", "extract"))
    return experiment.folder / "raw"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".json"}


def every_choice():
    for task in wmt.TASKS:
        yield task, ()
        for key, options in (load_yaml("corpus", task).get("choices") or {}).items():
            yield from ((task, (f"{key}={option}",)) for option in list(options)[1:])


@pytest.mark.parametrize("task, choose", every_choice())
def test_every_task_and_choice_is_extracted(task, choose, local, tmp_path):
    raw = fetched(tmp_path, task, choose=choose)
    spec = tasks.load_task(task, choose)
    record = json.loads((raw / "extract.json").read_text())
    for split in ("train", "valid", "test"):
        numbers = [sum(1 for _ in read_lines(raw / f"{split}.{lang}")) for lang in spec.settings.languages]
        assert numbers[0] == numbers[1] == sum(part["pairs"] for part in record["splits"][split])
    assert list(read_lines(raw / f"test.{spec.settings.target_lang}")) == wmt.test_reference(task)
    assert set(record["archives"]) == set(spec.downloads)


def test_the_filtered_lines_are_those_of_the_archive(local, tmp_path):
    raw = fetched(tmp_path)
    assert [int(line) for line in read_lines(raw / "test.filtered.lines")] == list(range(5, 30))


@pytest.mark.slow
def test_faults_of_the_connection_do_not_change_the_text(server, local, tmp_path):
    """B21: truncated, refused and damaged answers give the same text in the end."""
    before = len(server.requests)
    good = contents(fetched(tmp_path / "good"))
    paths = sorted({request.path for request in server.requests[before:]})
    assert len(paths) == 6
    for number, path in enumerate(paths):
        trouble = ({"cut": 300, "times": 2}, {"status": 503, "times": 1}, {"wrong": True, "times": 1})[number % 3]
        server.faults[path] = Fault(**trouble)
    try:
        assert contents(fetched(tmp_path / "bad")) == good
        assert not any(fault.times for fault in server.faults.values())
    finally:
        server.faults.clear()


def test_a_file_that_no_mirror_gives_is_named_and_no_files_are_left(server, local, tmp_path):
    path = next(path for path in server.files if "commoncrawl" in path)
    server.faults[path] = Fault(html=True)
    try:
        with pytest.raises(InputError, match="wmt13-commoncrawl: no mirror gives it: .* --offline"):
            fetched(tmp_path)
        assert not (tmp_path / "wmt14_en_de").exists()
        assert not list((tmp_path / "downloads").glob("wmt13-commoncrawl*"))
    finally:
        server.faults.clear()


def test_a_changed_source_is_refused_and_extracted_text_needs_no_archives(server, local, tmp_path, capsys):
    good = contents(fetched(tmp_path))
    archive = tmp_path / "downloads" / "wmt14-news-commentary-v9"
    archive.unlink()
    assert contents(fetched(tmp_path)) == good
    assert "the archives are not needed" in capsys.readouterr().out
    shutil.rmtree(tmp_path / "wmt14_en_de")
    path = next(path for path in server.files if "training-parallel-nc-v9" in path)
    before = server.files[path]
    server.files[path] = wmt.tar({"training/news-commentary-v9.de-en.de": b"x\n"})
    try:
        with pytest.raises(InputError, match=r"v9\.part: not the file of .*wmt14-news-commentary-v9\.json"):
            fetched(tmp_path)
    finally:
        server.files[path] = before


@pytest.mark.parametrize("change, message", [("url", "no longer one of its addresses"), ("sha256", "sha256 is ")])
def test_changed_addresses_or_checksums_are_refused_as_other_text(configs, change, message, tmp_path, monkeypatch):
    """Also if the text is already extracted, with and without the archive."""
    shutil.copytree(configs, tmp_path / "configs")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "configs"))
    fetched(tmp_path, "wmt16_ro_en")
    path = tmp_path / "configs" / "corpus" / "wmt16_ro_en.yaml"
    spec = yaml.safe_load(path.read_text(encoding="utf-8"))
    urls = spec["downloads"]["wmt16-test"]["urls"]
    urls[0] = f"{urls[0]}.new" if change == "url" else {"url": urls[0], "sha256": "0" * 64}
    path.write_text(yaml.safe_dump(spec), encoding="utf-8")
    for stages in (("download",), ("extract",), ("prepare",)):
        with pytest.raises(InputError, match=f"raw was made from another wmt16-test: .*{message}.*; remove "):
            reproduce(Experiment("wmt16_ro_en", "softmax", tmp_path), stages)
    shutil.rmtree(tmp_path / "wmt16_ro_en")
    with pytest.raises(InputError, match=f"wmt16-test: .*{message}.*; remove it and "):
        fetched(tmp_path, "wmt16_ro_en")


def test_two_processes_cannot_extract_the_same_text(local, tmp_path):
    raw = tmp_path / "wmt14_en_de" / "raw"
    with only_process(raw), pytest.raises(InputError, match="raw is being made by another process, "):
        fetched(tmp_path)
    assert fetched(tmp_path).is_dir()


def test_files_that_were_fetched_elsewhere_work_offline(local, tmp_path):
    """The files have the names of `rela download --list`, or those in the addresses."""
    good = contents(fetched(tmp_path / "online"))
    elsewhere = tmp_path / "stick"
    elsewhere.mkdir()
    for path in (tmp_path / "online" / "downloads").iterdir():
        if path.suffix != ".json":
            shutil.copy(path, elsewhere / path.name)
    (elsewhere / "wmt13-europarl-v7").rename(elsewhere / "training-parallel-europarl-v7.tgz")
    assert contents(fetched(tmp_path / "offline", offline=elsewhere)) == good
    (elsewhere / "wmt13-commoncrawl").unlink()
    with pytest.raises(InputError, match="has no file wmt13-commoncrawl or training-parallel-commoncrawl.tgz"):
        fetched(tmp_path / "less", offline=elsewhere)


@pytest.mark.skipif(not (SHARED / "data" / "wmt_newstest").is_dir(), reason="no shared data")
@pytest.mark.parametrize("task", wmt.TASKS)
def test_the_official_test_sets_pass_the_shipped_checks(task, tmp_path):
    """Complete dev and test sets as sgm, against the counts and reference lengths of the shipped corpus files."""
    news = SHARED / "data" / "wmt_newstest"
    names = {
        "wmt14_en_de": ("newstest2013", "newstest2014.en-de"),
        "wmt14_en_fr": ("newstest2013", "newstest2014.en-fr"),
        "wmt18_en_fi": ("newstest2017.en-fi", "newstest2018.en-fi"),
        "wmt18_zh_en": ("newstest2017.zh-en", "newstest2018.zh-en"),
        "wmt16_ro_en": ("newsdev2016.ro-en", "newstest2016.ro-en"),
    }[task]
    spec = tasks.load_task(task)
    text = {
        split: {
            lang: (news / f"{name}.{lang}").read_text(encoding="utf-8").split("\n")[:-1]
            for lang in spec.settings.languages
        }
        for split, name in zip(("valid", "test"), names)
    }
    members = {}

    def add(part, lines):
        for name, lang, kind in zip(part.files, spec.settings.languages, ("srcset", "refset")):
            download, _, member = name.partition(":")
            members.setdefault(download, {})[member] = wmt.sgm(lines[lang], lang, kind)

    for split in ("valid", "test"):
        add(spec.sources.splits[split][0], text[split])
    for part in spec.sources.subsets.values():
        chosen = [int(line) for line in read_lines(news / "newstest2014.en-de.filtered2737.index0")]
        add(part, {lang: [lines[i] for i in chosen] for lang, lines in text["test"].items()})
    archives = {}
    for name, content in members.items():
        archives[name] = tmp_path / name
        archives[name].write_bytes(wmt.tar(content))
    splits = {**spec.sources.splits, "train": spec.sources.splits["valid"]}
    sources = spec.sources.__class__(
        spec.settings.languages, splits, spec.sources.subsets, spec.sources.reference_length
    )
    record = extract(sources, archives, tmp_path / "raw", {})
    assert record["splits"]["test"][0]["pairs"] == len(text["test"][spec.settings.target_lang])
    if task == "wmt14_en_de":
        subset = (tmp_path / "raw" / "test.filtered.lines").read_text().split()
        pairs = list(zip(*text["test"].values()))
        assert len(subset) == 2737
        # lines that occur twice in the test set may be exchanged
        assert [pairs[int(i)] for i in subset] == [pairs[i] for i in chosen]


# --- the whole chain ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("task", wmt.TASKS)
def test_the_chain_runs_from_archives_to_a_score(task, configs, tmp_path):
    attention = "softmax" if task == "wmt14_en_fr" else "rela_g"
    environment = {FOLDER_VARIABLE: str(configs)}
    arguments = ["reproduce", task, attention, "--override", "run=cpu_smoke", "--workers", 2]
    result = run_rela(*arguments, cwd=tmp_path, env=environment)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    for stage in STAGES:
        assert f"== {task} {attention}: {stage}" in result.stdout
    run = tmp_path / "experiments" / task / f"{attention}.run-cpu_smoke"
    scores = json.loads((run / "score.json").read_text())
    references = wmt.test_reference(task)
    assert scores["sentences"] == len(references) == sum(1 for _ in read_lines(run / "test.txt"))
    assert scores["reference_length"] == wmt.reference_length(references)
    assert "tok:13a" in scores["signature"] and 0 <= scores["bleu"] < 100
    assert re.search(rf"cross: attention that ran +{attention}\n", result.stdout)
    if task == "wmt14_en_de":
        assert scores["subsets"]["filtered"]["sentences"] == 25
    again = run_rela(*arguments, cwd=tmp_path, env=environment)
    assert again.returncode == 0
    assert all(words in again.stdout for words in ("already extracted", "already prepared", "already trained"))


def kill_somewhere(arguments, seconds, rng, **options):
    """Start `rela` and kill it after a random part of its running time."""
    process = subprocess.Popen(
        [sys.executable, *RELA[1:], *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
    )
    try:
        process.communicate(timeout=rng.uniform(0, seconds))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()  # all that hold the pipe have ended
        return True
    return False


@pytest.mark.slow
def test_twenty_kills_do_not_change_the_bytes_of_the_chain(configs, tmp_path):
    rng = random.Random(5)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), FOLDER_VARIABLE: str(configs)}
    task, attention = "wmt16_ro_en", "rela_g"

    def arguments(root, stage):
        return ["reproduce", task, attention, stage, "--root", root, "--override", "run=cpu_smoke", "--workers", 2]

    kills = {"download": 3, "extract": 3, "prepare": 6, "train": 4, "average": 1, "translate": 2, "score": 1}
    killed = 0
    for stage, number in kills.items():
        start = time.monotonic()
        result = run_rela(*arguments(tmp_path / "calm", stage), env=environment)
        assert result.returncode == 0, result.stderr[-2000:]
        seconds = time.monotonic() - start
        for _ in range(number):
            killed += kill_somewhere(arguments(tmp_path / "rough", stage), seconds, rng, env=environment)
        result = run_rela(*arguments(tmp_path / "rough", stage), env=environment)
        assert result.returncode == 0, (stage, result.stderr[-2000:])
    assert sum(kills.values()) == 20 and killed >= 12
    folders = [tmp_path / name / task for name in ("calm", "rough")]
    for part in ("raw", "data"):
        names = [sorted(p.relative_to(f / part) for p in (f / part).rglob("*")) for f in folders]
        assert names[0] == names[1]
    records = [json.loads((folder / "data" / "prepare.json").read_text()) for folder in folders]
    assert records[0]["outputs"] == records[1]["outputs"]
    raw = [{p.name: sha256(p) for p in (folder / "raw").iterdir()} for folder in folders]
    assert raw[0] == raw[1]
    run = f"{attention}.run-cpu_smoke"
    for name in ("test.txt", "score.json"):
        assert (folders[0] / run / name).read_bytes() == (folders[1] / run / name).read_bytes()
    assert not [
        p for p in (tmp_path / "rough").rglob("*") if ".partial" in p.name or p.name.endswith((".part", ".lock"))
    ]
