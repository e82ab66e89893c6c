"""Studies: their files, their statistics, their queue, and their collected results."""

import gzip
import json
import random
import sys
import time
from pathlib import Path
from unittest import mock

import numpy
import pytest
import yaml
from conftest import ROOT, run_rela

from fairseq_rela.analysis import summaries
from fairseq_rela.errors import InputError
from fairseq_rela.experiment import reproduce, training
from fairseq_rela.experiment.composed import checksums, composed_values
from fairseq_rela.experiment.experiment import Experiment
from fairseq_rela.files.configs import FOLDER_VARIABLE
from fairseq_rela.files.records import sha256, write_json
from fairseq_rela.study import gold_set, queue, spec
from fairseq_rela.study import perform as performing
from fairseq_rela.study.bootstrap import paired_bootstrap
from fairseq_rela.study.collect import collect, paired_difference
from fairseq_rela.study.folder import StudyFolder
from fairseq_rela.study.measures import measures
from fairseq_rela.user_dir import VARIABLE

BASE = {
    "task": "synthetic",
    "baseline": "softmax",
    "seeds": [1, 2],
    "rows": [
        {"label": "softmax", "attention": "softmax", "table_1": 1},
        {"label": "cross", "attention": "rela_g", "sites": "cross", "table_1": 13, "seeds": [2, 3]},
    ],
}


@pytest.fixture
def configs(tmp_path, monkeypatch):
    """Copy configs/; each test writes the study `one` in it."""
    import shutil

    folder = tmp_path / "configs"
    shutil.copytree(ROOT / "configs", folder)
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))

    def write(**changes):
        values = {key: value for key, value in {**BASE, **changes}.items() if value is not None}
        (folder / "study" / "one.yaml").write_text(yaml.safe_dump(values))

    write()
    return write


@pytest.mark.parametrize("name", [path.stem for path in sorted((ROOT / "configs" / "study").glob("*.yaml"))])
def test_every_shipped_study_loads_with_the_rows_of_the_paper(name):
    from fairseq_rela.report.paper import TABLE_1

    study = spec.load_study(name)
    assert len({job.name for job in study.jobs}) == sum(len(row.seeds) for row in study.rows)
    for row in study.rows:
        if row.table_1 is not None:
            paper = next(entry for entry in TABLE_1 if entry.row == row.table_1)
            assert (row.attention, tuple(row.attention_sites)) == (paper.attention, paper.sites)
        overrides = [f"attention={row.attention}", *study.jobs[0].overrides]
        assert checksums(study.task, overrides)


def test_a_start_cannot_be_an_override_of_the_command_either(configs):
    with pytest.raises(InputError, match=r"instead of \+start, give the row `start:`"):
        spec.load_study("one", ("+start=softmax",))


def test_jobs_are_ordered_by_seed_and_name_their_folders(configs):
    study = spec.load_study("one", ("optimization.max_update=9",))
    assert [job.name for job in study.jobs] == ["softmax.seed-1", "cross.seed-2", "softmax.seed-2", "cross.seed-3"]
    assert study.jobs[1].overrides == ("sites=cross", "optimization.max_update=9", "common.seed=2")
    assert study.rows[1].attention_sites == ["cross"]
    runs = StudyFolder(study, Path("out"), Path("root")).runs
    assert runs[1].experiment.run == Path("root/synthetic/rela_g.sites-cross.max_update-9.seed-2")


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"task": None}, "task is missing"),
        ({"task": "nothing"}, "no task 'nothing'"),
        ({"baseline": "other"}, "baseline 'other' is not the label of a row; give one of softmax, cross"),
        ({"speed": 1}, "unknown entry speed"),
        ({"overrides": ["+start=softmax"]}, "overrides: instead of +start, give the row `start:`"),
        ({"seeds": [1, 1]}, "seeds: give a list of different whole numbers"),
        ({"seeds": [True]}, "seeds: give a list of different whole numbers"),
        ({"seeds": None}, "row 1: no seeds"),
        ({"overrides": ["seed"]}, "overrides: give a list of KEY=VALUE"),
        ({"rows": [{"label": "a/b", "attention": "relu"}]}, "row 1: label 'a/b'"),
        ({"rows": [{"label": "a", "attention": "rulu"}]}, "rulu"),
        ({"rows": [{"label": "a", "attention": "relu", "sites": "middle"}]}, "no config 'middle'"),
        ({"rows": [{"label": "a", "attention": "relu", "table_1": 14}]}, "14 is not a row of Table 1"),
        ({"rows": BASE["rows"] * 2}, "two rows have the label softmax"),
        ({"rows": [*BASE["rows"], {"label": "twin", "attention": "softmax"}]}, "softmax and twin are the same model"),
        (
            {"gold": "../x", "gold_kind": "silver"},
            "is not the name of a file; give the name of one in the study's folder",
        ),
        ({"gold": "x"}, "gold_kind is missing"),
        ({"ranking": 1}, "ranking: 1; give true or false"),
        (
            {"rows": [{"label": "softmax", "attention": "relu", "start": "x"}]},
            "'x', which is not the label of an earlier",
        ),
        ({"rows": [{"label": "softmax", "attention": "relu", "start": "softmax"}]}, "not the label of an earlier row"),
        (
            {"rows": [*BASE["rows"], {"label": "b", "attention": "relu", "start": "cross"}]},
            "cross, which lacks the seed 1",
        ),
    ],
)
def test_a_wrong_study_is_refused_in_one_line(configs, changes, words):
    configs(**changes)
    with pytest.raises(InputError) as error:
        spec.load_study("one")
    assert words in str(error.value) and "\n" not in str(error.value)


def test_statistics_equal_numpy_and_a_printed_table():
    values = [31.2, 33.0, 32.1, 30.4]
    found = summaries.summarise(values)
    assert found.mean == pytest.approx(numpy.mean(values)) and found.n == 4
    assert found.sd == pytest.approx(numpy.std(values, ddof=1))
    low, high = found.interval
    half = 3.182 * numpy.std(values, ddof=1) / 2  # t of 3 degrees of freedom at 97.5 %, from the tables of textbooks
    assert (low, high) == pytest.approx((numpy.mean(values) - half, numpy.mean(values) + half), abs=1e-3)
    assert summaries.summarise([1.0]) == (1.0, None, 1, None)


def test_differences_are_paired_over_common_seeds():
    found = paired_difference({1: 10.0, 2: 20.0, 3: 99.0}, {1: 9.0, 2: 18.0, 4: 0.0})
    assert found["mean"] == pytest.approx(1.5) and found["seeds"] == [1, 2] and found["n"] == 2
    half = 12.706 * (0.5**0.5) / 2**0.5  # t of 1 degree of freedom; the differences are 1 and 2
    assert found["interval"] == pytest.approx([1.5 - half, 1.5 + half], abs=1e-3)
    assert paired_difference({1: 1.0}, {2: 1.0}) is None
    assert paired_difference({1: 3.0}, {1: 1.0})["interval"] is None


def test_the_bootstrap_distinguishes_a_worse_translation_from_an_equal_one():
    from sacrebleu.metrics import BLEU

    rng = random.Random(1)
    references = [" ".join(rng.choice("abcdefgh") * 3 for _ in range(12)) for _ in range(200)]
    worse = [line if i % 2 else " ".join(line.split()[::-1]) for i, line in enumerate(references)]
    found = paired_bootstrap(worse, references, references, "de")
    bleu = BLEU().corpus_score(worse, [references]).score
    assert found["difference"] == pytest.approx(bleu - 100) and found["p"] < 0.01
    assert found["interval"][0] < bleu < found["interval"][1]
    same = paired_bootstrap(worse, worse, references, "de")
    assert same["difference"] == 0 and same["p"] == 1


def record_of(run, bleu, lines, state="done"):
    """Write the record of a finished run in the form of `perform`, with different numbers for each run."""
    layers = [{"null_rate": 0.1}, {"null_rate": 0.3}]
    site = {"layers": layers, "sparsity": bleu / 100, "null_rate": 0.2, "diversity": {"1.0": 0.5}}
    record = {
        "format": 1,
        "study": run.folder.study.name,
        "label": run.job.row.label,
        "seed": run.job.seed,
        "state": state,
        "made_of": run.made_of(),
    }
    if state == "done":
        run.translation.parent.mkdir(parents=True, exist_ok=True)
        run.translation.write_bytes(gzip.compress("".join(line + "\n" for line in lines).encode()))
        record.update(
            score={"bleu": bleu, "sentences": len(lines), "hypothesis_length": 9, "reference_length": 10},
            updates=5,
            parameters=7,
            valid=[{"updates": 1, "nll": 3.0}, {"updates": 2, "nll": 2.5}],
            analysis={
                "sites": {"cross": site},
                "shuffled": {"sites": {"cross": {"layers": [{"null_rate": 0.5}, {"null_rate": 0.7}]}}},
                "alignment": {kind: {"aol": 0.4, "aoh": 0.3} for kind in ("normal", "shifted")},
            },
            ranking={"copy": {"null_rate_auc": 0.25, "logprob_auc": 0.75}},
            translation={"file": run.translation.name, "sha256": str(bleu)},
        )
    run.record.parent.mkdir(parents=True, exist_ok=True)
    run.record.write_text(json.dumps(record))
    return record


def test_collecting_gives_means_and_differences(configs, tmp_path):
    configs(rows=[BASE["rows"][0], {"label": "relu", "attention": "relu", "table_1": 4}])
    folder = StudyFolder(spec.load_study("one"), tmp_path / "out", tmp_path / "root")
    raw = tmp_path / "root" / "synthetic" / "data" / "raw"
    raw.mkdir(parents=True)
    references = [f"a b c d {i} e f" for i in range(20)]
    (raw / "test.xb").write_text("".join(line + "\n" for line in references))
    runs = {run.name: run for run in folder.runs}
    record_of(runs["softmax.seed-1"], 30.0, references)
    record_of(runs["softmax.seed-2"], 32.0, references)
    record_of(runs["relu.seed-1"], 29.0, references[::-1])
    record_of(runs["relu.seed-2"], 0.0, (), state="diverged")
    found = collect(folder)
    softmax, relu = found["rows"]
    assert softmax["mean"]["bleu"] == {"mean": 31.0, "sd": pytest.approx(2**0.5), "n": 2}
    assert relu["mean"]["bleu"] == {"mean": 29.0, "sd": None, "n": 1}
    assert relu["difference"]["bleu"] == {"mean": -1.0, "interval": None, "n": 1, "seeds": [1]}
    assert "difference" not in softmax and [run["state"] for run in relu["runs"]] == ["done", "diverged"]
    assert relu["mean"]["length_ratio"]["mean"] == pytest.approx(0.9)
    assert relu["mean"]["valid_nll"]["mean"] == 2.5
    assert relu["mean"]["null_rate_shuffled.cross"]["mean"] == pytest.approx(0.6)
    assert relu["mean"]["auc.log_probability.copy"]["mean"] == 0.75
    assert relu["bootstrap"]["1"]["difference"] < 0 and "2" not in relu["bootstrap"]
    assert measures(relu["runs"][1]) == {}
    # a clone without the references uses the stored comparisons, and no others
    marked = json.loads((tmp_path / "out" / "study.json").read_text())
    marked["rows"][1]["bootstrap"]["1"]["p"] = 0.123
    (tmp_path / "out" / "study.json").write_text(json.dumps(marked))
    (raw / "test.xb").unlink()
    assert collect(folder)["rows"][1]["bootstrap"]["1"]["p"] == 0.123


def test_collecting_writes_tables_page_figures_and_documents(configs, tmp_path, capsys, monkeypatch):
    from fairseq_rela.cli import main

    pytest.importorskip("matplotlib")
    from fairseq_rela.study import docs, tables

    configs(rows=[BASE["rows"][0], {"label": "rela_g", "attention": "rela_g", "table_1": 7}])
    monkeypatch.chdir(tmp_path)
    folder = StudyFolder(spec.load_study("one"), Path("studies/one"), Path("experiments"))
    for run, bleu in zip(folder.runs, (30.0, 29.0, 31.0, 30.5)):
        record_of(run, bleu, ["a b c"])
    readme = "<!-- study:one:short begin -->\n<!-- study:one:short end -->\n"
    Path("README.md").write_text(readme)
    assert main(["study", "one", "--collect"]) == 0
    assert str(tmp_path / "README.md") in capsys.readouterr().out
    collected = json.loads(Path("studies/one/study.json").read_text())
    assert docs.between(Path("README.md").read_text(encoding="utf-8"), "one", "short") == tables.short(collected)
    assert "29.75" in Path("studies/one/study.html").read_text(encoding="utf-8")
    assert tables.full(collected) in Path("studies/one/study.md").read_text(encoding="utf-8")
    assert Path("studies/one/figures/bleu-by-row.svg").is_file()


def test_records_of_other_settings_are_refused(configs, tmp_path):
    def first_run():
        return StudyFolder(spec.load_study("one"), tmp_path / "out", tmp_path / "root").runs[0]

    record_of(first_run(), 30.0, ["a"])
    assert first_run().finished()["score"]["bleu"] == 30.0
    recipe = tmp_path / "configs" / "recipe" / "paper.yaml"
    recipe.write_text("# a comment changes nothing\n" + recipe.read_text())
    assert first_run().finished()
    recipe.write_text(recipe.read_text().replace("model:\n", "model:\n  a_new_option: 0\n"))
    assert first_run().finished()
    recipe.write_text(recipe.read_text().replace("label_smoothing: 0.1", "label_smoothing: 0.2"))
    with pytest.raises(InputError, match=r"measured with other configs \(criterion.label_smoothing\); remove it"):
        first_run().finished()


@pytest.mark.parametrize("changed", ["averaged", "start_model", "user_dir", "ranking"])
def test_records_of_other_models_or_measurements_are_refused(changed, configs, tmp_path, monkeypatch):
    rows = [{"label": "softmax", "attention": "softmax"}, {"label": "b", "attention": "rela_g", "start": "softmax"}]
    configs(rows=rows)
    own = tmp_path / "mine"
    own.mkdir()
    (own / "__init__.py").write_text("")
    monkeypatch.setenv(VARIABLE, str(own))

    def last_run():
        return StudyFolder(spec.load_study("one"), tmp_path / "out", tmp_path / "root").runs[1]

    run = last_run()
    model = run.experiment.start_model
    model.parent.mkdir(parents=True)
    model.write_text("a")
    record_of(run, 30.0, ["a"])
    older = json.loads(run.record.read_text())
    assert last_run().finished()
    if changed == "averaged":
        defaults = tmp_path / "configs" / "defaults" / "experiment.yaml"
        defaults.write_text(defaults.read_text().replace("averaged: 5", "averaged: 1"))
    elif changed == "start_model":
        model.write_text("b")
    elif changed == "user_dir":
        (own / "__init__.py").write_text("import math")
    else:
        configs(rows=rows, ranking=True)
    with pytest.raises(InputError, match=f"measured with other {changed} .*remove it to run this job again"):
        last_run().finished()
    del older["made_of"][changed]  # records of older versions lack it
    run.record.write_text(json.dumps(older))
    assert last_run().finished()
    model.unlink()  # as in a checkout with the records only
    assert last_run().finished()


def test_a_diverged_run_is_recorded_and_a_failed_one_is_not(configs, tmp_path, monkeypatch):
    folder = StudyFolder(spec.load_study("one"), tmp_path / "out", tmp_path / "root")

    def fail_with(words):
        def fails(experiment, stages):
            raise InputError(words)

        monkeypatch.setattr(performing, "reproduce", fails)

    fail_with("fairseq-hydra-train failed with exit code 1: FloatingPointError: gradients are Nan/Inf (log: /a/b)")
    record = performing.perform(folder.runs[0])
    assert record["state"] == "diverged" and "/a/b" not in record["reason"]
    assert folder.runs[0].finished()["state"] == "diverged"
    fail_with("no space left on the disk")
    with pytest.raises(InputError, match="no space"):
        performing.perform(folder.runs[1])
    assert folder.runs[1].finished() is None


# instead of `rela study NAME --run INDEX`: records its start and end; job 1 fails
WORKER = """
import json, sys, time
index = int(sys.argv[sys.argv.index("--run") + 1])
started = time.time()
time.sleep(0.3)
if index == 1 and not {fixed}:
    print("it broke"); sys.exit(2)
from pathlib import Path
record, seed, made_of = json.loads({runs!r})[index]
Path(record).parent.mkdir(parents=True, exist_ok=True)
Path(record).write_text(json.dumps({{"state": "done", "seed": seed, "score": {{"bleu": 1.0}},
    "made_of": made_of, "span": [started, time.time()]}}))
"""


def test_the_queue_continues_after_a_failure_and_repeats_no_job(configs, tmp_path, capsys):
    folder = StudyFolder(spec.load_study("one"), tmp_path / "out", tmp_path / "root")

    runs = json.dumps([(str(run.record), run.job.seed, run.made_of()) for run in folder.runs])

    def work(fixed, number=2):
        code = WORKER.format(fixed=fixed, runs=runs)
        queue.run_queue(folder.runs, number, [sys.executable, "-c", code])

    with pytest.raises(InputError, match=r"1 of 4 runs failed: cross.seed-2 \(it broke\)"):
        work(fixed=False)
    assert "cross.seed-2: FAILED" in capsys.readouterr().out
    stamps = {path: path.stat().st_mtime_ns for path in (folder.records).glob("*.json")}
    assert len(stamps) == 3
    work(fixed=True)
    assert "3 of 4 runs are already there" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert len(list((folder.records).glob("*.json"))) == 4


def test_a_run_waits_for_the_model_that_starts_it(configs, tmp_path):
    """With three processes the runs of softmax would otherwise run beside those that start from it."""
    rows = [
        {"label": "softmax", "attention": "softmax"},
        {"label": "later", "attention": "rela_g", "start": "softmax", "overrides": ["optimization.max_epoch=2"]},
    ]
    configs(rows=rows)
    folder = StudyFolder(spec.load_study("one"), tmp_path / "out", tmp_path / "root")
    runs = {run.name: run for run in folder.runs}
    experiment = runs["later.seed-2"].experiment
    assert experiment.run.name == "rela_g.max_epoch-2.start-softmax.seed-2.seed-2"
    assert experiment.start_model == runs["softmax.seed-2"].experiment.average
    with pytest.raises(InputError, match=r"average.pt, which is missing; remove .*runs/softmax.seed-2.json, and the"):
        performing.perform(runs["later.seed-2"])
    with pytest.raises(InputError, match=r"--start softmax.seed-2: .*average.pt is missing; train that run first"):
        experiment.check()
    facts = json.dumps([(str(run.record), run.job.seed, run.made_of()) for run in folder.runs])
    queue.run_queue(folder.runs, 3, [sys.executable, "-c", WORKER.format(fixed=True, runs=facts)])
    spans = {name: json.loads(run.record.read_text())["span"] for name, run in runs.items()}
    for seed in (1, 2):
        assert spans[f"later.seed-{seed}"][0] > spans[f"softmax.seed-{seed}"][1]
    configs(rows=[rows[0], {**rows[1], "start": None}])
    changed = StudyFolder(spec.load_study("one"), tmp_path / "out", tmp_path / "root")
    with pytest.raises(InputError, match="was measured with other start"):
        changed.runs[1].finished()


def test_the_model_that_starts_another_is_trained_first(tmp_path, monkeypatch):
    calls = []
    for stage in ("train", "average"):
        monkeypatch.setitem(reproduce.RUN, stage, lambda one, stage=stage: calls.append((one.run.name, stage)))
    chosen = ("common.seed=2", "+start=softmax", "sites=cross", "+model.rela_sparsity_target=0.7")
    experiment = Experiment("multi30k_en_de", "rela_g", tmp_path, overrides=chosen)
    assert experiment.start_model == tmp_path / "multi30k_en_de" / "softmax.seed-2" / "average.pt"
    reproduce.reproduce(experiment, ["average", "train"])
    first, second = "softmax.seed-2", "rela_g.sites-cross.rela_sparsity_target-0.7.start-softmax.seed-2"
    assert calls == [(first, "train"), (first, "average"), (second, "train"), (second, "average")]
    folder = experiment.start_model.parent
    folder.mkdir(parents=True)
    experiment.start_model.touch()
    write_json(folder / "train.json", {"updates": 9})
    for updates, expected in ((7, [(first, "average")]), (9, [])):  # of the finished training, it needs no checkpoints
        calls.clear()
        record = {"checkpoints": [{"updates": updates}], "sha256": sha256(experiment.start_model)}
        write_json(folder / "average.pt.json", record)
        reproduce.reproduce(experiment, ["train"])
        assert calls == [(first, "train"), *expected, (second, "train")]
    calls.clear()
    for overrides, start, message in (
        (("start=softmax",), None, r"give \+start=softmax"),
        (("++start=softmax",), None, r"give \+start=softmax"),
        (("+start=softmax", "optimization.max_update=9"), "softmax", "leave out --start"),
        (("+start=softmax", "checkpoint.finetune_from_model=x"), None, "leave out --start"),
        (
            ("+start=softmax", "common.seed=2"),
            None,
            r"not trained by epochs; give .* or .* give --start softmax.seed-2",
        ),
        (("+start=sotfmax",), None, "sotfmax"),
        (("+start=relu", "optimization.max_update=9"), None, "no config 'relu' in .*start; there are softmax"),
    ):
        with pytest.raises(InputError, match=message):
            reproduce.reproduce(Experiment("synthetic", "rela_g", tmp_path, None, overrides, start=start), ["train"])
    assert calls == []


def test_train_asks_for_the_model_that_starts_another(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "DataFolder", mock.MagicMock())
    with pytest.raises(InputError, match="by --override checkpoint.finetune_from_model=FILE"):
        training.train("synthetic", "rela_g", tmp_path, tmp_path / "run", ["+start=softmax"])


def test_the_start_that_is_recommended_is_the_one_of_the_study():
    row = next(row for row in spec.load_study("multi30k_en_de_gap").rows if row.label == "rela_g-after_10epochs")
    assert row.start == "softmax" and row.overrides == ("optimization.max_epoch=5",)
    usual = composed_values("multi30k_en_de", ["attention=rela_g"])
    started = composed_values("multi30k_en_de", ["attention=rela_g", "+start=softmax"])
    assert started == {**usual, "optimization.max_epoch": 5} != usual


def test_a_start_model_is_loaded_unless_a_checkpoint_is_restored(tmp_path):
    from fairseq_rela.data.folder import DataFolder

    data = mock.Mock(spec=DataFolder, path=tmp_path)
    one = training._Training("synthetic", "rela_g", data, tmp_path / "run", [], tmp_path / "average.pt")
    assert f"checkpoint.finetune_from_model={tmp_path}/average.pt" in one.arguments(None)
    resumed = " ".join(one.arguments(tmp_path / "checkpoint2.pt"))
    assert resumed.count("finetune") == 1 and resumed.endswith("checkpoint.finetune_from_model=null")
    assert f"checkpoint.restore_file={tmp_path}/checkpoint2.pt" in resumed


def test_the_options_only_run_and_list(configs, tmp_path, capsys, monkeypatch):
    from fairseq_rela.cli import main

    monkeypatch.chdir(tmp_path)
    assert main(["study", "one", "--list", "--only", "cross"]) == 0
    assert capsys.readouterr().out == "1\tcross.seed-2\t-\n3\tcross.seed-3\t-\n"
    for arguments, words in (
        (["one", "--only", "relu"], "--only relu: no such row; choose from softmax, cross"),
        (["one", "--run", "4"], "--run 4: one has the runs 0 to 3"),
        (["none"], "no config 'none'"),
    ):
        assert main(["study", *arguments]) == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "studies").exists()


def test_a_missing_silver_alignment_stops_the_study_before_it_trains(configs, tmp_path):
    configs(gold="silver.test.talp", gold_kind="silver")
    folder = StudyFolder(spec.load_study("one"), tmp_path / "out", tmp_path / "root")
    with pytest.raises(InputError, match="silver.test.talp: no such file.*scripts/silver_alignment.py"):
        queue.prepare_data(folder)


@pytest.mark.parametrize("resumed, seconds", [("", {"train": 12.5}), ("Loaded checkpoint x.pt (epoch 3)\n", {})])
def test_a_training_that_was_interrupted_has_no_time(tmp_path, resumed, seconds):
    """fairseq's log has the time of its last process only."""
    for name, record in (("analysis", {"parameters": 7}), ("train", {"updates": 5, "computed_by": {}}), ("score", {})):
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
    (tmp_path / "translate.json").write_text(json.dumps({"speed": None}))
    (tmp_path / "train.log").write_text(f"{resumed}done training in 12.5 seconds\n")
    assert performing._measured(tmp_path)["seconds"] == seconds
    assert performing._measured(tmp_path, Path("x.pt"))["seconds"] == {"train": 12.5}  # the model that starts it
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "train.log").write_text(f"Loaded checkpoint {tmp_path / 'x.pt'}\ndone training in 12.5 seconds\n")
    assert performing._measured(tmp_path, tmp_path / "link" / "x.pt")["seconds"] == {"train": 12.5}


def test_a_gold_set_needs_finished_runs_with_their_models(configs, tmp_path, capsys, monkeypatch):
    from fairseq_rela.cli import main

    monkeypatch.chdir(tmp_path)
    arguments = ["study", "one", "--gold-alignment", "gold"]
    assert main(arguments) == 2
    assert "no run is finished; train some before --gold-alignment" in capsys.readouterr().err
    folder = StudyFolder(spec.load_study("one"), Path("studies/one"), Path("experiments"))
    for run, bleu in zip(folder.runs, (30.0, 29.0, 31.0, 30.5)):
        record_of(run, bleu, ["a b c"])
    assert main(arguments) == 2
    (error,) = capsys.readouterr().err.strip().splitlines()
    assert "experiments/synthetic/data: no prepare.json" in error
    study = collect(folder)
    assert gold_set.best_label(study) == "softmax"
    assert not Path("studies/one/gold_set.json").exists()
    # the results of a model that was trained again are left out
    row = study["rows"][0]
    first, second = (run["seed"] for run in row["runs"])
    for run, checksum in zip(row["runs"], "ab"):
        run["analysis"] = {"sha256": checksum}
    errors = {str(first): {"sha256": "a", "normal": {}}, str(second): {"sha256": "old", "normal": {}}}
    record = {"format": gold_set.FORMAT, "rows": {row["label"]: errors, "gone": errors}}
    assert gold_set.of_models(record, [row])["rows"] == {row["label"]: {str(first): errors[str(first)]}}


@pytest.mark.slow
def test_the_synthetic_study_with_few_updates(tmp_path):
    """Two rows with two seeds, one row before the other; a third call trains no model."""
    pytest.importorskip("matplotlib")
    overrides = [
        *("optimization.max_update=10", "checkpoint.save_interval_updates=2", "dataset.max_tokens=500"),
        *("lr_scheduler.warmup_updates=5", "lr_scheduler.warmup_init_lr=1e-4", "dataset.disable_validation=true"),
    ]
    options = ["--jobs", 2, *(word for override in overrides for word in ("--override", override))]
    rows = ["--only", "softmax", "--only", "rela_g-cross"]
    first = run_rela("study", "synthetic", *options, *rows[2:], cwd=tmp_path)
    assert first.returncode == 0, first.stderr[-2000:]
    second = run_rela("study", "synthetic", *options, *rows, cwd=tmp_path)
    assert second.returncode == 0, second.stderr[-2000:]
    assert "2 of 4 runs are already there" in second.stdout
    study = json.loads((tmp_path / "studies" / "synthetic" / "study.json").read_text())
    assert [len(row["runs"]) for row in study["rows"]] == [2, 0, 0, 2]
    for row in study["rows"]:
        for run in row["runs"]:
            assert run["state"] == "done" and run["updates"] == 10 and run["score"]["sentences"] == 300
            assert run["analysis"]["alignment"]["sentences"] == 300
    cross = study["rows"][3]
    assert cross["difference"]["bleu"]["n"] == 2 and set(cross["bootstrap"]) == {"1", "2"}
    started = time.monotonic()
    third = run_rela("study", "synthetic", *options, *rows, cwd=tmp_path)
    assert third.returncode == 0 and "4 of 4 runs are already there" in third.stdout
    assert time.monotonic() - started < 60
    # the test set itself as the gold set gives the same errors
    names = ("data/text/test.xa", "data/text/test.xb", "raw/test.align")  # the links count tokens
    paths = [tmp_path / "experiments" / "synthetic" / name for name in names]
    gold = [word for path in paths for word in ("--gold-alignment", path)]
    fourth = run_rela("study", "synthetic", *options, "--only", "rela_g-cross", *gold, cwd=tmp_path)
    assert fourth.returncode == 0, fourth.stderr[-2000:]
    study = json.loads((tmp_path / "studies" / "synthetic" / "study.json").read_text())
    measured = study["gold_set"]["rows"]
    (label,) = measured
    runs = next(row["runs"] for row in study["rows"] if row["label"] == label)
    for run in runs:
        entry = measured[label][str(run["seed"])]
        assert entry.pop("sha256") == run["analysis"]["sha256"]
        for kind, errors in entry.items():
            assert errors == pytest.approx({mean: run["analysis"]["alignment"][kind][mean] for mean in errors})
    assert "not from the study's corpus: 0 of" in (tmp_path / "studies" / "synthetic" / "study.md").read_text()
