"""The stages of a run, from a data folder to an analysed model: train, average, translate, score, and two more."""

import re
from pathlib import Path
from typing import Any, Dict, List, Optional

from ..data.folder import DataFolder
from ..data.pairs import describe_words
from ..errors import InputError
from ..files.configs import load_defaults
from ..files.lines import read_lines
from ..files.records import read_record, sha256, write_json
from ..register import load_plugin
from . import scoring, training, translation
from .averaging import average_last, newest_update
from .decoding import load_decoding
from .experiment import Experiment
from .shown import describe_attention, describe_score

_SUBSET = re.compile(r"raw/test\.(.+)\.lines")


def train(experiment: Experiment) -> None:
    """Train the model of the run, see :func:`fairseq_rela.experiment.training.train`."""
    training.train(
        experiment.task,
        experiment.attention,
        experiment.data,
        experiment.run,
        experiment.overrides,
        experiment.start_model,
    )


def average(experiment: Experiment) -> None:
    """Average the last checkpoints of the run; ``configs/defaults/experiment.yaml`` has their number.

    Raises:
        InputError: the training has not ended, or as :func:`fairseq_rela.experiment.averaging.average_last`.
    """
    if not (experiment.run / "train.json").is_file():
        raise InputError(f"{experiment.run}: not trained to its end; run the stage train first")
    average_last(experiment.run, load_defaults("experiment")["averaged"], experiment.average)


def is_averaged(experiment: Experiment) -> bool:
    """Return whether the average is that of the finished training; its checkpoints may have been removed since."""
    updates = newest_update(experiment.average)
    return updates is not None and updates == read_record(experiment.run / "train.json")["updates"]


def translate(experiment: Experiment) -> None:
    """Translate the test set with the averaged checkpoint, and write ``translate.json``."""
    output, record_path = experiment.run / "test", experiment.run / "translate.json"
    decoding, averaged = load_decoding(), _checksum_of_stage(experiment.average, "average")
    data = DataFolder(experiment.data)
    wanted = {"checkpoint": averaged, "data": data.outputs, "decoding": decoding._asdict()}
    record = _made_of(record_path, wanted)
    if record and record.get("outputs") == _translations(experiment):
        print(f"{output}.txt: already translated")
        return
    data.refuse_changed(data.binarised("test"))
    speed = translation.translate(data, experiment.average, output, decoding)
    write_json(record_path, {**wanted, "outputs": _translations(experiment), "speed": speed._asdict()})
    print(f"{output}.txt: {speed}")


def _translations(experiment: Experiment) -> Dict[str, str]:
    """Return the checksums of the translated files, name to SHA-256."""
    paths = [experiment.run / f"test.{kind}" for kind in ("bpe", "tok", "txt")]
    return {path.name: sha256(path) for path in paths if path.is_file()}


def _checksum_of_stage(path: Path, stage: str) -> str:
    """Return the SHA-256 checksum of a file that a stage makes.

    Raises:
        InputError: the file is missing; the message names the stage that makes it.
    """
    if not path.is_file():
        raise InputError(f"{path} is missing; run the stage {stage} first")
    return sha256(path)


def _made_of(path: Path, inputs: Dict[str, Any]) -> Dict[str, Any]:
    """Return the record of a stage if it was made of these inputs, otherwise an empty dictionary."""
    record = read_record(path) if path.is_file() else {}
    return record if {key: record.get(key) for key in inputs} == inputs else {}


def score(experiment: Experiment) -> None:
    """Score the translations of the test set and of its subsets, and write ``score.json``.

    Raises:
        InputError: the translations are missing, have changed, or were made from other data.
    """
    data = DataFolder(experiment.data)
    lang = data.settings.target_lang
    references = (f"raw/test.{lang}", f"text/test.{lang}")
    data.refuse_changed(references)
    record = experiment.run / "translate.json"
    _checksum_of_stage(record, "translate")
    translated, hypotheses = read_record(record), experiment.run / "test.bpe"
    if translated.get("outputs") != _translations(experiment):
        raise InputError(f"{hypotheses} has changed since it was translated; run the stage translate again")
    if translated.get("data") != data.outputs:
        raise InputError(f"{hypotheses} was made from other data than {experiment.data}; run the stage translate again")
    texts = [list(read_lines(path)) for path in (hypotheses, *(data.path / name for name in references))]
    scores = _score(data, *texts)
    for name in data.outputs:
        subset = _SUBSET.fullmatch(name)
        if subset:
            data.refuse_changed([name])
            lines = [int(line) for line in read_lines(data.path / name)]
            chosen = ([text[i] for i in lines] for text in texts)
            scores.setdefault("subsets", {})[subset.group(1)] = _score(data, *chosen)
    write_json(experiment.run / "score.json", scores)
    print(describe_score(scores))


def _score(data: DataFolder, hypotheses: List[str], references: List[str], tokens: List[str]) -> Dict[str, Any]:
    settings = data.settings
    return scoring.score(hypotheses, references, settings.target_lang, settings.tokeniser, tokens, settings.truecase)


def attention(experiment: Experiment) -> None:
    """Measure which attention runs at each site and how sparse it is, and write ``attention.json``."""
    load_plugin()
    from ..analysis.analyze import summarise

    output = experiment.run / "attention.json"
    inputs = {
        "sha256": _checksum_of_stage(experiment.average, "average"),
        "data": DataFolder(experiment.data).outputs,
    }
    summary = _made_of(output, inputs)
    if not summary:
        summary = {**summarise(experiment.average, experiment.data, "test"), **inputs}
        write_json(output, summary)
    print(describe_attention(summary))


def analyze(experiment: Experiment) -> None:
    """Analyse all layers and heads on the test set and the gold set, and write ``analysis.json``."""
    load_plugin()
    from ..analysis import analyze as analyses
    from ..analysis import record
    from ..analysis.align import measure_gold_set
    from ..analysis.sentences import data_checksums

    output = experiment.run / "analysis.json"
    with experiment.open_gold_set() as gold_set:
        links = experiment.test_links if gold_set is None else None
        inputs: Dict[str, Any] = {
            "sha256": _checksum_of_stage(experiment.average, "average"),
            "data": data_checksums(experiment.data, "test"),
            "gold": {"file": links.name, "sha256": _checksum_of_stage(links, "prepare")} if links else None,
        }
        if gold_set is not None:
            inputs["gold"] = gold_set.record
        elif links is None:
            inputs["gold"] = _earlier_gold_set(output)
        if "words" in _made_of(output, inputs) and (experiment.run / "examples.json").is_file():
            print(f"{output}: already analysed")
            return
        measured = (
            {} if gold_set is None else measure_gold_set(experiment.average, DataFolder(experiment.data), gold_set)
        )
        analysis = {**analyses.analyze(experiment.average, experiment.data, "test", gold=links), **measured}
    if measured:
        alignment = measured["alignment"]
        print(f"alignment error on {alignment['sentences']:,} pairs of the gold set {alignment['gold']}")
        print(describe_words(measured["gold_text"]))
    record.write(analysis, experiment.run)
    print(record.describe(analysis))


def _earlier_gold_set(output: Path) -> Optional[Dict[str, Any]]:
    """Return the gold set that an earlier call measured, so that a call without one keeps its analysis, or None."""
    gold = read_record(output).get("gold") if output.is_file() else None
    return gold if gold and "files" in gold else None
