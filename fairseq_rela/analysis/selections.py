"""Select the best pairs, the worst pairs and a random sample of a ranked corpus, and describe the selections."""

import random
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import compress, count, islice
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy

from ..errors import InputError
from ..files.lines import read_byte_lines, read_lines
from ..files.outputs import write_whole
from ..files.records import read_json, write_json
from .orders import DEFAULT_BY, ORDERS, sample_pairs, scored_pairs, select_pairs, worst_pairs

FORMAT = 1
EXAMPLES = 10  # most pairs of a selection whose text is in the record
_NUMBERS = ("null_rate", "log_probability", "source_pieces", "target_pieces")
_LONGEST = 500  # most characters of an example


@dataclass(frozen=True)
class Choice:
    """Which pairs of a ranked corpus to write.

    Attributes:
        by: order of the pairs, one of :data:`fairseq_rela.analysis.orders.ORDERS`.
        keep_best: most pairs to keep.
        max_null_rate: highest null rate to keep, from 0 to 1.
        keep_worst: number of the worst pairs.
        sample: number of pairs drawn at random from all pairs with a score.
        seed: seed of the sample.

    Raises:
        InputError: an option has a bad value.
    """

    by: str = DEFAULT_BY
    keep_best: Optional[int] = None
    max_null_rate: Optional[float] = None
    keep_worst: Optional[int] = None
    sample: Optional[int] = None
    seed: int = 1

    def __post_init__(self) -> None:
        numbers = {"keep-best": self.keep_best, "keep-worst": self.keep_worst, "sample": self.sample}
        for name, value in numbers.items():
            if value is not None and value < 1:
                raise InputError(f"--{name} {value}: give a number of at least 1")
        if self.max_null_rate is not None and not 0 <= self.max_null_rate <= 1:
            raise InputError(f"--max-null-rate {self.max_null_rate}: give a number from 0 to 1")
        if self.by not in ORDERS:
            raise InputError(f"--by {self.by}: choose one of {', '.join(ORDERS)}")

    @property
    def keeps_best(self) -> bool:
        """Whether the best pairs are selected."""
        return self.keep_best is not None or self.max_null_rate is not None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is selected."""
        return not self.keeps_best and self.keep_worst is None and self.sample is None


def selection_files(output: Path, languages: Sequence[str]) -> Dict[str, Tuple[Path, ...]]:
    """Return the two file names of each selection: ``OUTPUT.LANG``, ``OUTPUT.worst.LANG``, ``OUTPUT.sample.LANG``."""
    return {
        name: tuple(output.with_name(f"{output.name}{middle}.{lang}") for lang in languages)
        for name, middle in (("best", ""), ("worst", ".worst"), ("sample", ".sample"))
    }


def selections_path(output: Path) -> Path:
    """Return the file of the record of the selections of a ranking, ``OUTPUT.selections.json``."""
    return output.with_name(f"{output.name}.selections.json")


def write_selections(
    output: Path,
    inputs: Sequence[Path],
    languages: Sequence[str],
    label: str,
    scores: Tuple["numpy.ndarray", "numpy.ndarray"],
    choice: Choice,
) -> Dict[str, Any]:
    """Write the unchanged lines of each selection, and ``OUTPUT.selections.json`` with means and examples.

    Args:
        output: a complete ranking.
        inputs: the two files that were ranked.
        languages: source and target language.
        label: name of the cross-attention that gave the scores.
        scores: null rates and log-probabilities, (n,) each, nan where a pair has no score.
        choice: the requested selections.

    Returns:
        the record: ``format``, ``label``, the fields of ``choice``, ``pairs``, ``unscored`` and ``selections``. The
        latter maps the name of a selection, or ``all`` for all pairs with a score, to ``pairs``, the number of its
        pairs, and the means of the ranking's columns. Chosen selections also have ``files`` and ``examples``, at most
        :data:`EXAMPLES` pairs drawn at random, in their original order, with line (from 0), scores and text.

    Raises:
        InputError: a selection is empty.
    """
    chosen = _choose(output, *scores, choice)
    files = selection_files(output, languages)
    for name, mask in chosen.items():
        _write_lines(inputs, files[name], mask)
    selections = _means(output, chosen)
    for name, mask in chosen.items():
        selections[name]["files"] = [path.name for path in files[name]]
        selections[name]["examples"] = _examples(output, inputs, mask)
    counts = {"pairs": len(scores[0]), "unscored": int(numpy.isnan(scores[0]).sum())}
    record = {"format": FORMAT, "label": label, **asdict(choice), **counts, "selections": selections}
    write_json(selections_path(output), record)
    return record


def _choose(
    ranking: Path, null_rates: "numpy.ndarray", log_probabilities: "numpy.ndarray", choice: Choice
) -> Dict[str, "numpy.ndarray"]:
    """Return the requested selections: ``best``, ``worst`` or ``sample`` to (n,) booleans."""
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
            raise InputError(f"{ranking}: {what}, so there is nothing to select; change the options")
    return chosen


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
            # the first line may begin with a byte order mark
            **{side: text.decode("utf-8-sig")[:_LONGEST] for side, text in zip(("source", "target"), texts)},
        }
        for number, scores, *texts in rows
        if number in drawn
    ]


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
        raise InputError(f"{path}: not in the format of `rela rank` ({error!r}); rank again") from error
    return record


def describe(record: Dict[str, Any], folder: Path) -> str:
    """Return one line with the files of each selection in ``folder``, and a table of the means of the selections."""
    files, table = [], []
    for name, one in record["selections"].items():
        if "files" in one:
            how = "drawn at random" if name == "sample" else f"kept, the {name} by {record['by']}"
            names = ", ".join(str(folder / file) for file in one["files"])
            files.append(f"{names}: {one['pairs']:,} of {record['pairs']:,} pairs {how}")
        table.append(
            f"{name:10}{one['pairs']:>12,}{one['null_rate']:>12.4f}{one['log_probability']:>18.3f}"
            f"{one['source_pieces']:>16.1f}{one['target_pieces']:>16.1f}"
        )
    head = f"{'':10}{'pairs':>12}{'null rate':>12}{'log-probability':>18}{'source pieces':>16}{'target pieces':>16}"
    return "\n".join([*files, head, *table])
