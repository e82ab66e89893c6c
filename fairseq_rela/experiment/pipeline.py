"""The stages from raw text to BLEU; a stage whose complete result from the same inputs exists is skipped."""

import json
import re
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from .. import checkpoints
from ..analysis.goldset import GoldSet, open_gold_set
from ..corpora import extract, synthetic
from ..corpora.download import fetch, fetch_all
from ..corpora.ledger import why_not_of
from ..data.folder import DataFolder
from ..data.pairs import describe_words
from ..data.prepare import describe, prepare
from ..errors import InputError
from ..files.commands import USER_DIR, refuse_misread, run_fairseq
from ..files.lines import read_lines
from ..files.locks import only_process
from ..files.records import read_json, read_record, sha256, write_json
from ..register import load_plugin
from ..variants import find_variant
from . import config
from .evaluation import score, translate
from .naming import canonical, run_name, split_override
from .progress import TrainingProgress

STAGES = ("download", "extract", "prepare", "train", "average", "translate", "score", "attention", "analyze")
AVERAGED = 5
_COMPUTED_BY = re.compile(r"attention: computed by (.+)$", re.MULTILINE)


class Experiment(NamedTuple):
    """One task with one attention.

    Attributes:
        task: a name from :func:`fairseq_rela.experiment.config.task_names`.
        attention: a variant name (paper, Table 1).
        root: the folder of all experiments. It holds downloads in ``root/downloads``, raw text in ``root/TASK/raw``,
            prepared data in ``root/TASK/data`` and a run in ``root/TASK/RUN`` (see
            :func:`fairseq_rela.experiment.naming.run_name`). TASK includes the non-default choices of ``choose``.
        raw: a folder with the raw corpus; replaces the stages download and extract.
        overrides: Hydra overrides, such as ``optimization.max_epoch=3``.
        workers: number of processes that prepare the text; None uses all cores.
        choose: ``KEY=VALUE`` for each choice of data that is not the task's default.
        offline: a folder with files downloaded elsewhere; nothing is downloaded.
        moses: a checkout of Moses, whose scripts then normalise and tokenise.
        gold: a word alignment of the test set for the stage analyze; replaces the task's own.
        gold_alignment: a folder, or files, with a gold word alignment of sentences other than the test set, see
            :func:`fairseq_rela.analysis.goldset.open_gold_set`.
    """

    task: str
    attention: str
    root: Path
    raw: Optional[Path] = None
    overrides: Sequence[str] = ()
    workers: Optional[int] = None
    choose: Tuple[str, ...] = ()
    offline: Optional[Path] = None
    moses: Optional[Path] = None
    gold: Optional[Path] = None
    gold_alignment: Tuple[Path, ...] = ()

    @property
    def spec(self) -> config.Task:
        return config.load_task(self.task, self.choose)

    @property
    def folder(self) -> Path:
        return self.root / self.spec.label

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def run(self) -> Path:
        return self.folder / run_name(self.attention, self.overrides)


def reproduce(experiment: Experiment, stages: Sequence[str] = STAGES) -> None:
    """Run the given stages in the order of :data:`STAGES`.

    Raises:
        InputError: the task, the attention, a stage, an override or a given folder is invalid, or a stage failed.
    """
    find_variant(experiment.attention)
    spec = experiment.spec  # refuses unknown tasks and choices
    for stage in stages:
        if stage not in STAGES:
            raise InputError(f"no stage {stage!r}; there are {', '.join(STAGES)}")
    _refuse_reserved(experiment.overrides)
    with _gold_set(experiment):  # refuses missing files now; they are read hours later
        pass
    if "train" in stages:  # refuses missing config files now; training starts hours later
        config.checksums(experiment.task, [f"attention={experiment.attention}", *experiment.overrides])
    for option, folder in (("--offline", experiment.offline), ("--raw", experiment.raw), ("--moses", experiment.moses)):
        if folder is not None and not folder.is_dir():
            raise InputError(f"{option} {folder}: no such folder")
    wanted = [stage for stage in STAGES if stage in stages]
    if spec.sources is None or experiment.raw is not None:
        wanted = [stage for stage in wanted if stage not in ("download", "extract")]
    for stage in wanted:
        print(f"== {experiment.task} {experiment.attention}: {stage}", flush=True)
        start = time.monotonic()
        with _held(experiment, stage):
            _RUN[stage](experiment)
        print(f"== {stage}: {time.monotonic() - start:.0f} s", flush=True)


# stages that lock the run's folder, with the verb that the error message uses; earlier stages lock their own outputs
_HOLDING = {
    "average": "averaged",
    "translate": "translated",
    "score": "scored",
    "attention": "analyzed",
    "analyze": "analyzed",
}


def _held(experiment: Experiment, stage: str) -> ContextManager[None]:
    """Return a context manager that locks the run's folder during a stage.

    Raises:
        InputError: another process trains or uses the run; raised when the context is entered.
    """
    if stage in _HOLDING and experiment.run.is_dir():
        return only_process(experiment.run, _HOLDING[stage])
    return nullcontext()


def _download(experiment: Experiment) -> None:
    if _extracted(experiment) is None:
        fetch_all(dict(experiment.spec.downloads), experiment.root / "downloads", experiment.offline)
    else:
        print(f"{experiment.folder / 'raw'}: already extracted; the archives are not needed")


def _extract(experiment: Experiment) -> None:
    raw, spec = experiment.folder / "raw", experiment.spec
    record = _extracted(experiment)
    if record is None:
        downloads = experiment.root / "downloads"
        fetched = {name: fetch(spec.downloads[name], downloads, experiment.offline) for name in spec.downloads}
        print(extract.cost(spec.sources, experiment.root))
        entries = {name: entry for name, (_, entry) in fetched.items()}
        archives = {name: path for name, (path, _) in fetched.items()}
        record = extract.extract(spec.sources, archives, raw, {**_identity(experiment), "archives": entries})
    else:
        print(f"{raw}: already extracted")
    print(extract.describe(record))


def _identity(experiment: Experiment) -> Dict[str, Any]:
    """Return what determines the raw text of a task, in the form in which JSON reads it back."""
    sources = json.loads(json.dumps(asdict(experiment.spec.sources)))
    del sources["bytes_a_pair"]  # an estimate, which does not change the text
    return {"task": experiment.task, "choices": dict(experiment.spec.choices), "sources": sources}


def _extracted(experiment: Experiment) -> Optional[Dict[str, Any]]:
    """Return the record of the extracted raw text, or None if nothing is extracted yet.

    Raises:
        InputError: the text was made from other corpora or archives, or a file is missing or has changed.
    """
    raw = experiment.folder / "raw"
    record = extract.finished(raw, _identity(experiment))
    for name, entry in (record or {}).get("archives", {}).items():
        reason = why_not_of(entry, experiment.spec.downloads[name].mirrors)
        if reason:
            raise InputError(f"{raw} was made from another {name}: {reason}; remove {raw} and run again")
    return record


def _prepare(experiment: Experiment) -> None:
    raw, spec = experiment.raw, experiment.spec
    if raw is None and experiment.task == "synthetic":
        raw = experiment.folder / "raw"
        if not (raw / "test.align").is_file():
            synthetic.write_corpus(raw)
    elif raw is None and spec.sources is not None:
        raw = experiment.folder / "raw"
        if _extracted(experiment) is None:
            raise InputError(f"{raw} is missing; run the stages download and extract first, or give --raw FOLDER")
    elif raw is None:
        raise InputError(f"{experiment.task} needs --raw FOLDER, the folder with your copy of the corpus")
    record = prepare(spec.corpus(raw), spec.settings, experiment.data, experiment.workers, experiment.moses)
    print(describe(record))


def _train(experiment: Experiment) -> None:
    train(
        experiment.task,
        experiment.attention,
        data=experiment.data,
        save_dir=experiment.run,
        overrides=experiment.overrides,
    )


def train(task: str, attention: str, data: Path, save_dir: Path, overrides: Sequence[str] = ()) -> None:
    """Train with ``fairseq-hydra-train`` and the shipped configuration, or resume an interrupted run.

    The checkpoint to restore is loaded before training. If ``checkpoint_last.pt`` is damaged, training resumes from
    the newest checkpoint that loads. A missing restore file is an error; fairseq would train from scratch. After
    training, the checkpoint must hold the requested attention.

    Args:
        task: a name from :func:`fairseq_rela.experiment.config.task_names`.
        attention: a variant name.
        data: a prepared data folder.
        save_dir: the folder for checkpoints, log and records.
        overrides: Hydra overrides.

    Raises:
        InputError: unknown task or attention, changed data, a folder that was trained with other settings, or
            training failed.
    """
    find_variant(attention)
    config.require_task(task)
    _refuse_reserved(overrides)
    folder = DataFolder(data)
    meant = "-".join(config.load_task(task).settings.languages)
    if folder.pair != meant:
        print(f"warning: {data} is of {folder.pair}, and {task} is made for {meant}", file=sys.stderr)
    folder.refuse_changed(name for name in folder.outputs if name.endswith((".bin", ".idx", ".txt")))
    data, save_dir = data.resolve(), save_dir.resolve()
    refuse_misread(data)
    refuse_misread(save_dir)
    with only_process(save_dir, "trained"):
        _train_alone(task, attention, data, save_dir, overrides, folder.outputs)


def _train_alone(
    task: str, attention: str, data: Path, save_dir: Path, overrides: Sequence[str], outputs: Dict[str, str]
) -> None:
    wanted = {
        "task": task,
        "attention": attention,
        "overrides": list(overrides),
        "data": outputs,
        "configs": config.checksums(task, [f"attention={attention}", *overrides]),
    }
    done = save_dir / "train.json"
    if done.is_file():
        _refuse_different(save_dir, "was trained", read_record(done), wanted)
        print(f"{save_dir}: already trained")
        return
    good = checkpoints.newest_good(save_dir)
    restore = _restore(save_dir, overrides, good)
    _refuse_foreign_run(save_dir, wanted)
    for path in _torn(save_dir):
        path.unlink()
    arguments: List[str] = [
        "--config-dir",
        str(config.config_folder()),
        "--config-name",
        task,
        f"attention={attention}",
        f"common.user_dir={_quoted(USER_DIR)}",
        f"task.data={_quoted(data)}",
        f"checkpoint.save_dir={_quoted(save_dir)}",
        *restore,
        *overrides,
    ]
    if "run=slurm" in overrides:
        arguments.append("-m")  # Hydra uses the Slurm launcher only in a multirun; it returns when the job has ended
    if not _complete(save_dir, good):
        progress = TrainingProgress(save_dir)
        try:
            run_fairseq("hydra_train", arguments, log=save_dir / "train.log", shorten=progress)
        except InputError:
            _refuse_full_disk(save_dir)
            raise
        finally:
            progress.close()
    last = checkpoints.find(save_dir)[0]
    model = checkpoints.load(last.path)["cfg"]["model"]
    if model["attention"] != attention:
        raise InputError(f"{last.path} holds attention {model['attention']}, {attention} was asked for")
    computed_by = _COMPUTED_BY.findall((save_dir / "train.log").read_text(encoding="utf-8"))
    write_json(done, {**wanted, "updates": last.updates, "computed_by": computed_by})
    print(f"trained for {last.updates:,} updates; checkpoints in {save_dir}")


def _complete(save_dir: Path, good: Optional[checkpoints.Found]) -> bool:
    """Return whether the newest good checkpoint already has all updates, and make it ``checkpoint_last.pt``.

    This happens if a run dies after its last update and before its record is written. fairseq, started again, would
    make one more update.
    """
    if good is None:
        return False
    limit = checkpoints.load(good.path)["cfg"]["optimization"]["max_update"]
    if not 0 < limit <= good.updates:
        return False
    last = save_dir / "checkpoint_last.pt"
    if good.path != last:  # fairseq copies the state to this name last
        copy = save_dir / "checkpoint_last.pt.tmp"
        shutil.copyfile(good.path, copy)
        copy.replace(last)
    return True


def _torn(save_dir: Path) -> List[Path]:
    """Return the half-written checkpoints of a process that died; fairseq first writes to names ending in ``.tmp``."""
    return [path for path in save_dir.glob("checkpoint*.pt.tmp") if path.is_file()]


def _refuse_full_disk(save_dir: Path) -> None:
    """Raise if the disk is full; called after a failed training, because fairseq's error does not name this cause.

    Removes half-written checkpoints before raising.

    Raises:
        InputError: less space is free than the largest checkpoint takes, or than 1 MiB if there is none.
    """
    torn = _torn(save_dir)
    sizes = [path.stat().st_size for path in [*save_dir.glob("checkpoint*.pt"), *torn]]
    free = shutil.disk_usage(save_dir).free
    if free < max(sizes, default=1 << 20):
        for path in torn:
            path.unlink()
        raise InputError(
            f"{save_dir}: no space left on the disk for a checkpoint ({free / 1e6:,.0f} MB free); make room, and the "
            "same command goes on from the newest good checkpoint"
        )


def _refuse_foreign_run(save_dir: Path, wanted: Dict[str, Any]) -> None:
    """Record the settings with which a run starts, unless the folder holds checkpoints of another run.

    Raises:
        InputError: the folder holds checkpoints of a run with other settings, or not made by ``rela train``.
    """
    started = save_dir / "train.started.json"
    begun = any(save_dir.glob("checkpoint*.pt"))
    if begun and started.is_file():
        _refuse_different(save_dir, "holds a run begun", read_record(started), wanted)
    elif begun:
        raise InputError(f"{save_dir} holds checkpoints that `rela train` did not make; train elsewhere")
    write_json(started, wanted)


def _refuse_different(save_dir: Path, what: str, record: Dict[str, Any], wanted: Dict[str, Any]) -> None:
    record, wanted = _comparable(record), _comparable(wanted)
    different = [key for key in wanted if record.get(key) != wanted[key]]
    if different:
        names = different[0]
        if isinstance(wanted[names], dict) and isinstance(record.get(names), dict):
            old, new = record[names], wanted[names]
            names += ": " + ", ".join(
                sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))[:3]
            )
        raise InputError(
            f"{save_dir} {what} with other {names}; remove it, or give another --save-dir (of `rela train`) or --root"
        )


def _comparable(record: Dict[str, Any]) -> Dict[str, Any]:
    """Return a training record with its overrides in canonical form, so that equal settings compare equal."""
    configs = record.get("configs")
    if isinstance(configs, dict):
        record = {**record, "configs": {name: configs[name] for name in configs if not name.startswith("sites/")}}
    overrides = record.get("overrides")
    if isinstance(overrides, list) and all(isinstance(override, str) for override in overrides):
        record = {**record, "overrides": canonical(overrides)}
    return record


# keys that `rela train` sets itself, with the option to use instead
_RESERVED = {
    "attention": "--attention",
    "model.attention": "--attention",
    "task.data": "--data",
    "checkpoint.save_dir": "--save-dir",
    "common.user_dir": "nothing: it is this plugin",
}


def _refuse_reserved(overrides: Sequence[str]) -> None:
    for override in overrides:
        name, value = split_override(override)
        if "=" not in override and not override.startswith("~"):
            raise InputError(f"--override {override}: give KEY=VALUE")
        if name in _RESERVED:
            raise InputError(f"--override {override}: give {_RESERVED[name]} instead")
        if name == "model._name" and not value.startswith("transformer_rela"):
            raise InputError(f"--override {override}: not a model of this plugin; train it by fairseq-train")


def _restore(save_dir: Path, overrides: Sequence[str], good: Optional[checkpoints.Found]) -> List[str]:
    """Return overrides that make fairseq restore the newest checkpoint that loads, if it would not do so by itself.

    Raises:
        InputError: a checkpoint given by an override, or every checkpoint of the folder, cannot be loaded.
    """
    for key in ("checkpoint.restore_file", "checkpoint.finetune_from_model"):
        for override in overrides:
            name, value = split_override(override)
            if name == key and value not in ("null", "checkpoint_last.pt"):
                checkpoints.load(Path(value))
                if key == "checkpoint.restore_file":
                    return []
    last = save_dir / "checkpoint_last.pt"
    if not last.exists() and not any(save_dir.glob("checkpoint*.pt")):
        return []
    if good is None:
        raise InputError(f"{save_dir}: none of its checkpoints can be loaded; remove the folder and train again")
    if good.path == last:
        print(f"going on from update {good.updates:,}")
        return []
    print(f"{last}: torn or missing; going on from {good.path.name} at update {good.updates:,}")
    return [f"checkpoint.restore_file={_quoted(good.path)}"]


def _quoted(path: Path) -> str:
    """Return a path as the value of a Hydra override, quoted if it holds special characters."""
    if re.fullmatch(r"[\w/.\-]+", str(path), re.ASCII):
        return str(path)
    escaped = str(path).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _average(experiment: Experiment) -> None:
    average_last(experiment.run, AVERAGED, experiment.run / "average.pt")


def average_last(folder: Path, number: int, output: Path) -> None:
    """Average the last checkpoints of a run and print which they are.

    Writes a record beside the average, ``OUTPUT.json``. If the record shows the same checkpoints, nothing is written.

    Args:
        folder: the run's folder.
        number: how many checkpoints to average.
        output: the file to write.

    Raises:
        InputError: too few checkpoints, an output without a name, or as :func:`fairseq_rela.checkpoints.average`.
    """
    if not output.name:
        raise InputError(f"--output {output}: give the name of a file to write")
    choice = checkpoints.choose_last(folder, number)
    with only_process(output, "written"):
        _average_chosen(choice, output)


def _average_chosen(choice: checkpoints.Choice, output: Path) -> None:
    record_path = output.with_name(output.name + ".json")
    record = {
        "checkpoints": [{"file": f.path.name, "updates": f.updates, "sha256": sha256(f.path)} for f in choice.chosen],
        "save_interval": choice.interval,
        "missing_updates": choice.missing,
    }
    if output.is_file() and record_path.is_file() and read_json(record_path) == {**record, "sha256": sha256(output)}:
        print(f"{output}: already averaged")
        return
    for found in choice.chosen:
        print(f"update {found.updates:,}: {found.path.name}")
    if choice.missing:
        missing = ", ".join(f"{update:,}" for update in choice.missing)
        print(f"unequal spacing: no checkpoint of update {missing}", file=sys.stderr)
    checkpoints.average([found.path for found in choice.chosen], output)
    write_json(record_path, {**record, "sha256": sha256(output)})
    print(f"{output}: the mean of {len(choice.chosen)} checkpoints")


def _translate(experiment: Experiment) -> None:
    checkpoint, record_path = experiment.run / "average.pt", experiment.run / "translate.json"
    decoding, averaged = config.load_decoding(), _checksum_of_stage(checkpoint, "average")
    data = DataFolder(experiment.data)
    wanted = {
        "checkpoint": averaged,
        "data": data.outputs,
        "decoding": decoding._asdict(),
    }
    output = experiment.run / "test"
    if record_path.is_file():
        record = read_record(record_path)
        same = {key: record.get(key) for key in wanted} == wanted
        if same and record.get("outputs") == _checksums(_translations(experiment)):
            print(f"{output}.txt: already translated")
            return
    data.refuse_changed(data.binarised("test"))
    speed = translate(data.path, checkpoint, output, decoding)
    write_json(record_path, {**wanted, "outputs": _checksums(_translations(experiment)), "speed": speed._asdict()})
    print(f"{output}.txt: {speed}")


def _translations(experiment: Experiment) -> List[Path]:
    return [experiment.run / f"test.{kind}" for kind in ("bpe", "tok", "txt")]


def _checksums(paths: Sequence[Path]) -> Dict[str, str]:
    return {path.name: sha256(path) for path in paths if path.is_file()}


def _checksum_of_stage(path: Path, stage: str) -> str:
    """Return the SHA-256 checksum of a file that a stage makes.

    Raises:
        InputError: the file is missing; the message names the stage that makes it.
    """
    if not path.is_file():
        raise InputError(f"{path} is missing; run the stage {stage} first")
    return sha256(path)


def _score(experiment: Experiment) -> None:
    data = DataFolder(experiment.data)
    settings, lang = data.settings, data.settings.target_lang
    data.refuse_changed([f"raw/test.{lang}", f"text/test.{lang}"])
    record = experiment.run / "translate.json"
    _checksum_of_stage(record, "translate")
    translated = read_record(record)
    if translated.get("outputs") != _checksums(_translations(experiment)):
        raise InputError(
            f"{experiment.run}/test.bpe has changed since it was translated; run the stage translate again"
        )
    if translated.get("data") != data.outputs:
        raise InputError(
            f"{experiment.run}/test.bpe is of other data than {experiment.data}; run the stage translate again"
        )
    texts = [
        list(read_lines(path))
        for path in (
            experiment.run / "test.bpe",
            experiment.data / "raw" / f"test.{lang}",
            experiment.data / "text" / f"test.{lang}",
        )
    ]

    def scored(hypotheses: List[str], references: List[str], tokens: List[str]) -> Dict[str, Any]:
        return score(hypotheses, references, lang, settings.tokeniser, tokens, settings.truecase)

    scores = scored(*texts)
    for name in data.outputs:
        subset = re.fullmatch(r"raw/test\.(.+)\.lines", name)
        if subset:
            data.refuse_changed([name])
            lines = [int(line) for line in read_lines(experiment.data / name)]
            scores.setdefault("subsets", {})[subset.group(1)] = scored(*([text[i] for i in lines] for text in texts))
    write_json(experiment.run / "score.json", scores)
    print(describe_score(scores))


def describe_score(scores: Dict[str, Any]) -> str:
    lines = [f"sacreBLEU {scores['bleu']:.2f}   {scores['signature']}"]
    if "tokenised_bleu" in scores:
        lines.append(f"tokenised BLEU {scores['tokenised_bleu']:.2f}   {scores['tokenised_signature']}")
    for name, subset in scores.get("subsets", {}).items():
        lines += [f"{name} ({subset['sentences']:,} sentences): {line}" for line in describe_score(subset).split("\n")]
    return "\n".join(lines)


def _attention(experiment: Experiment) -> None:
    load_plugin()
    from ..analysis.analyze import summarise

    checkpoint = experiment.run / "average.pt"
    output = experiment.run / "attention.json"
    made_of = {
        "sha256": _checksum_of_stage(checkpoint, "average"),
        "data": DataFolder(experiment.data).outputs,
    }
    summary = read_record(output) if output.is_file() else {}
    if {key: summary.get(key) for key in made_of} != made_of:
        summary = {**summarise(checkpoint, experiment.data, "test"), **made_of}
        write_json(output, summary)
    print(describe_attention(summary))


def _gold_of(experiment: Experiment) -> Optional[Path]:
    """Return the file with the gold word alignment of the test set, or None."""
    if experiment.gold is not None or experiment.spec.gold is None:
        return experiment.gold
    return (experiment.raw or experiment.folder / "raw") / experiment.spec.gold


def _analyze(experiment: Experiment) -> None:
    load_plugin()
    from ..analysis import analyze as analyses
    from ..analysis.align import gold_record, measure_gold_set

    checkpoint, output = experiment.run / "average.pt", experiment.run / "analysis.json"
    with _gold_set(experiment) as gold_set:
        gold = _gold_of(experiment) if gold_set is None else None
        made_of: Dict[str, Any] = {
            "sha256": _checksum_of_stage(checkpoint, "average"),
            "data": analyses.data_checksums(experiment.data, "test"),
            "gold": {"file": gold.name, "sha256": _checksum_of_stage(gold, "prepare")} if gold else None,
        }
        if gold_set is not None:
            made_of["gold"] = gold_record(gold_set.files, gold_set.links)
        done = read_record(output) if output.is_file() and (experiment.run / "examples.json").is_file() else {}
        if gold_set is None and gold is None and "files" in (done.get("gold") or {}):
            del made_of["gold"]  # keep the analysis of a gold set given in an earlier call
        if {key: done.get(key) for key in made_of} == made_of and "words" in done:
            print(f"{output}: already analysed")
            return
        measured = {} if gold_set is None else measure_gold_set(checkpoint, DataFolder(experiment.data), gold_set)
        analysis = {**analyses.analyze(checkpoint, experiment.data, "test", gold=gold), **measured}
    if measured:
        alignment = measured["alignment"]
        print(f"alignment error on {alignment['sentences']:,} pairs of the gold set {alignment['gold']}")
        print(describe_words(measured["gold_text"]))
    analyses.write(analysis, experiment.run)
    print(analyses.describe(analysis))


@contextmanager
def _gold_set(experiment: Experiment) -> Iterator[Optional[GoldSet]]:
    """Yield the opened gold set of an experiment, or None if it has none; its files exist within the context."""
    if not experiment.gold_alignment:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="rela-gold-") as work:
        yield open_gold_set(experiment.gold_alignment, experiment.spec.settings.languages, Path(work))


def describe_attention(summary: Dict[str, Any]) -> str:
    """Return one line per site: the attention that ran, its sparsity and null rate in percent, measured on pieces."""
    return "\n".join(
        f"pieces {site:8} {'/'.join(entry['variants']):18} exact zeros {entry['sparsity']:6.1%}   "
        f"null queries {entry['null_rate']:6.1%}"
        for site, entry in summary["sites"].items()
    )


def table(experiments: Sequence[Experiment]) -> str:
    """Return a table with a column per run: BLEU and its signature, parameters, sparsity, the attention that ran."""
    rows: Dict[str, List[str]] = {}

    def add(name: str, value: str) -> None:
        rows.setdefault(name, []).append(value)

    signature = ""
    for experiment in experiments:
        scores = read_record(experiment.run / "score.json")
        summary = read_record(experiment.run / "attention.json")
        signature = scores["signature"]
        add("", experiment.attention)
        add("sacreBLEU", f"{scores['bleu']:.2f}")
        for name, subset in scores.get("subsets", {}).items():
            add(f"sacreBLEU, {name} test set", f"{subset['bleu']:.2f}")
        add("parameters", f"{summary['parameters']:,}")
        add("cross-attention: exact zeros (pieces)", f"{summary['sites']['cross']['sparsity']:.1%}")
        add("cross-attention: null queries (pieces)", f"{summary['sites']['cross']['null_rate']:.1%}")
        for site, entry in summary["sites"].items():
            add(f"{site}: attention that ran", "/".join(entry["variants"]))
    width = max(map(len, rows)) + 2
    lines = [name.ljust(width) + "".join(value.rjust(14) for value in values) for name, values in rows.items()]
    return "\n".join([*lines, "signature".ljust(width) + signature])


_RUN: Dict[str, Callable[[Experiment], None]] = {
    "download": _download,
    "extract": _extract,
    "prepare": _prepare,
    "train": _train,
    "average": _average,
    "translate": _translate,
    "score": _score,
    "attention": _attention,
    "analyze": _analyze,
}
