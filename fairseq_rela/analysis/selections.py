"""Select the best pairs, the worst pairs and a random sample of a ranked corpus, and describe the selections."""

import random
from contextlib import ExitStack
from itertools import compress, count, islice
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy

from ..errors import InputError
from ..files.lines import read_byte_lines, read_lines
from ..files.outputs import write_whole
from ..files.records import read_json, write_json
from .ranking import DEFAULT_BY, sample_pairs, scored_pairs, select_pairs, worst_pairs

FORMAT = 1
EXAMPLES = 10  # most pairs of a selection whose text is in the record
_NUMBERS = ("null_rate", "log_probability", "source_pieces", "target_pieces")
_LONGEST = 500  # most characters of an example


class Choice(NamedTuple):
    """Which pairs of a ranked corpus to write.

    Attributes:
        by: order of the pairs, one of :data:`fairseq_rela.analysis.ranking.ORDERS`.
        keep_best: most pairs to keep.
        max_null_rate: highest null rate to keep, from 0 to 1.
        keep_worst: number of the worst pairs.
        sample: number of pairs drawn at random from all pairs with a score.
        seed: seed of the sample.
    """

    by: str = DEFAULT_BY
    keep_best: Optional[int] = None
    max_null_rate: Optional[float] = None
    keep_worst: Optional[int] = None
    sample: Optional[int] = None
    seed: int = 1

    @property
    def keeps_best(self) -> bool:
        return self.keep_best is not None or self.max_null_rate is not None

    @property
    def is_empty(self) -> bool:
        return not self.keeps_best and self.keep_worst is None and self.sample is None


def selection_files(output: Path, languages: Sequence[str]) -> Dict[str, Tuple[Path, ...]]:
    """Return the two file names of each selection: ``OUTPUT.LANG``, ``OUTPUT.worst.LANG``, ``OUTPUT.sample.LANG``."""
    return {
        name: tuple(output.with_name(f"{output.name}{middle}.{lang}") for lang in languages)
        for name, middle in (("best", ""), ("worst", ".worst"), ("sample", ".sample"))
    }


def selections_path(output: Path) -> Path:
    return output.with_name(f"{output.name}.selections.json")


def choose(null_rates: "numpy.ndarray", log_probabilities: "numpy.ndarray", choice: Choice) -> Dict[str, Any]:
    """Return the requested selections: ``best``, ``worst`` or ``sample`` to (n,) booleans.

    Args:
        null_rates, log_probabilities: (n,), nan where a pair has no score.
        choice: the requested selections.

    Raises:
        InputError: a selection is empty.
    """
    chosen = {}
    if choice.keeps_best:
        limits = choice.keep_best, choice.max_null_rate
        chosen["best"] = select_pairs(null_rates, log_probabilities, *limits, by=choice.by)
    if choice.keep_worst is not None:
        chosen["worst"] = worst_pairs(null_rates, log_probabilities, choice.keep_worst, choice.by)
    if choice.sample is not None:
        chosen["sample"] = sample_pairs(null_rates, log_probabilities, choice.sample, choice.seed)
    for mask in chosen.values():
        if not mask.any():
            scored = scored_pairs(null_rates, log_probabilities).any()
            what = f"no pair has a null rate of {choice.max_null_rate} or less" if scored else "no pair has a score"
            raise InputError(f"{what}, so there is nothing to keep")
    return chosen


def write_selections(
    output: Path, inputs: Sequence[Path], languages: Sequence[str], chosen: Dict[str, Any], about: Dict[str, Any]
) -> Dict[str, Any]:
    """Write the unchanged lines of each selection, and ``OUTPUT.selections.json`` with means and examples.

    Args:
        output: a complete ranking.
        inputs: the two files that were ranked.
        languages: source and target language.
        chosen: the selections from :func:`choose`.
        about: more entries of the record.

    Returns:
        the record, which is ``about`` with ``format`` and ``selections``. The latter maps the name of a selection, or
        ``all`` for all pairs with a score, to ``pairs``, the number of its pairs, and the means of the ranking's
        columns. Chosen selections also have ``files`` and ``examples``, at most :data:`EXAMPLES` pairs drawn at random,
        in their original order, with line (from 0), scores and text.
    """
    files = selection_files(output, languages)
    for name, mask in chosen.items():
        _write_lines(inputs, files[name], mask)
    selections = _means(output, chosen)
    for name, mask in chosen.items():
        selections[name]["files"] = [path.name for path in files[name]]
        selections[name]["examples"] = _examples(output, inputs, mask)
    record = {"format": FORMAT, **about, "selections": selections}
    write_json(selections_path(output), record)
    return record


def _write_lines(inputs: Sequence[Path], outputs: Sequence[Path], mask: "numpy.ndarray") -> None:
    with ExitStack() as stack:
        files = [stack.enter_context(write_whole(path, "wb")) for path in outputs]
        for path, file in zip(inputs, files):
            file.writelines(line + b"\n" for line in compress(read_byte_lines(path), mask))


def _scores(ranking: Path) -> Iterator[List[float]]:
    """Yield null rate, log-probability and numbers of source and target pieces of each pair of a ranking."""
    for line in islice(read_lines(ranking), 1, None):
        yield [float(column) for column in line.split("\t")[1:5]]


def _means(ranking: Path, chosen: Dict[str, Any]) -> Dict[str, Dict[str, Any]]:
    sums = {name: numpy.zeros(len(_NUMBERS)) for name in ("all", *chosen)}
    pairs = dict.fromkeys(sums, 0)
    for number, scores in enumerate(_scores(ranking)):
        if scores[0] != scores[0]:  # nan: no score
            continue
        for name in sums:
            if name == "all" or chosen[name][number]:
                sums[name] += scores
                pairs[name] += 1
    return {
        name: {"pairs": pairs[name], **dict(zip(_NUMBERS, (total / max(pairs[name], 1)).tolist()))}
        for name, total in sums.items()
    }


def _examples(ranking: Path, inputs: Sequence[Path], mask: "numpy.ndarray") -> List[Dict[str, Any]]:
    numbers = numpy.flatnonzero(mask).tolist()
    drawn = set(random.Random(1).sample(numbers, min(EXAMPLES, len(numbers))))
    rows = zip(count(), _scores(ranking), *map(read_byte_lines, inputs))
    return [
        {
            "line": number,
            "null_rate": scores[0],
            "log_probability": scores[1],
            **{side: _decode(text)[:_LONGEST] for side, text in zip(("source", "target"), texts)},
        }
        for number, scores, *texts in rows
        if number in drawn
    ]


def _decode(line: bytes) -> str:
    return line.decode("utf-8-sig")  # the first line may begin with a byte order mark


def load_selections(path: Path) -> Dict[str, Any]:
    """Return the record of the selections that ``rela rank`` wrote.

    Args:
        path: ``OUTPUT.selections.json``, or the ranking ``OUTPUT`` itself.

    Raises:
        InputError: the file does not exist, or it is not of this version.
    """
    beside = selections_path(path)
    path = beside if path.suffix != ".json" or beside.is_file() else path
    if not path.is_file():
        raise InputError(f"{path}: no such file; `rela rank` with --keep-best, --keep-worst or --sample writes it")
    record = read_json(path)
    try:
        if record["format"] != FORMAT or not isinstance(record["by"], str) or int(record["pairs"]) < 1:
            raise ValueError("its format")
        for one in record["selections"].values():
            for name in ("pairs", *_NUMBERS):
                float(one[name])
            for example in one.get("examples", []):
                int(example["line"]), float(example["null_rate"]), float(example["log_probability"])
                example["source"], example["target"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: not as `rela rank` writes it ({error!r}); rank again") from error
    return record


def describe(record: Dict[str, Any]) -> str:
    """Return a table of the means, with one line for each selection."""
    lines = [f"{'':10}{'pairs':>12}{'null rate':>12}{'log-probability':>18}{'source pieces':>16}{'target pieces':>16}"]
    for name, one in record["selections"].items():
        lines.append(
            f"{name:10}{one['pairs']:>12,}{one['null_rate']:>12.4f}{one['log_probability']:>18.3f}"
            f"{one['source_pieces']:>16.1f}{one['target_pieces']:>16.1f}"
        )
    return "\n".join(lines)
