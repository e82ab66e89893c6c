"""Group the runs that were measured on the same test set."""

from itertools import combinations
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..analysis.levels import LEVELS
from ..errors import InputError
from .characters import file_name
from .paper import TASK_NAMES
from .run import Run


class Group(NamedTuple):
    """Runs that were measured on the same test set, so that their numbers can be compared."""

    task: Optional[str]
    subset: Optional[str]
    sentences: Optional[int]
    languages: Tuple[str, ...]
    runs: List[Run]

    @property
    def title(self) -> str:
        """The name of the test set for readers: task, subset and number of sentences."""
        name = TASK_NAMES.get(self.task or "", self.task)
        pair = "-".join(self.languages) or "unknown languages"
        what = "language model" if self.is_language_model else name or f"{pair} (task not recorded)"
        number = f"{self.sentences:,} {'contexts' if self.is_language_model else 'sentences'}" if self.sentences else ""
        return ", ".join(filter(None, (what, f"subset {self.subset}" if self.subset else "", number)))

    @property
    def is_language_model(self) -> bool:
        """Whether the runs are language models."""
        return self.runs[0].is_language_model

    @property
    def key(self) -> str:
        """The prefix of file names: the task, or the languages, and the subset."""
        what = "language-model" if self.is_language_model else self.task or "-".join(self.languages)
        return file_name("-".join(filter(None, (what, self.subset))) or "runs")

    def is_test_set_of(self, task: str) -> bool:
        """Whether the runs were measured on the test set of a task."""
        return self.task == task and self.subset == "test"


def group_runs(runs: Sequence[Run]) -> List[Group]:
    """Group runs by task (or by languages if the task is unknown) and subset, and keep the order of the runs.

    Raises:
        InputError: two runs of a group have different test sets.
    """
    groups: Dict[Tuple[Any, ...], List[Run]] = {}
    for run in runs:
        key = (run.task, run.task is None and run.languages, run.is_language_model, run.subset)
        groups.setdefault(key, []).append(run)
    for members in groups.values():
        for first, other in combinations(members, 2):
            _refuse_other_data(first, other)
    return [
        Group(
            members[0].task,
            members[0].subset,
            next((n for n in map(_sentences, members) if n), None),
            next((run.languages for run in members if run.languages), ()),
            _with_unique_labels(_at_one_level(members)),
        )
        for members in groups.values()
    ]


def _with_unique_labels(runs: List[Run]) -> List[Run]:
    """Return the runs with unique labels: runs with equal labels get the end of their folder's path in brackets."""
    labels = [run.label for run in runs]
    for depth in (1, 2, 3, 64):
        repeated = {label for label in labels if labels.count(label) > 1}
        if not repeated:
            break
        parts = ["/".join(run.folder.resolve().parts[-depth:]) for run in runs]
        labels = [
            f"{run.label} ({part})" if run.label in repeated or label in repeated else label
            for run, label, part in zip(runs, labels, parts)
        ]
    return [run._replace(label=label) for run, label in zip(runs, labels)]


def _at_one_level(runs: List[Run]) -> List[Run]:
    """Return the runs at a level that all measured runs have, preferably words; without one, each keeps its level."""
    measured = [run for run in runs if run.by_level]
    for level in reversed(LEVELS):
        if all(level in run.by_level for run in measured):
            return [run._replace(level=level) if run.by_level else run for run in runs]
    return runs


def _sentences(run: Run) -> Optional[int]:
    for name in ("analysis", "score"):
        if run.files.get(name, {}).get("sentences"):
            return int(run.files[name]["sentences"])
    return None


def _refuse_other_data(first: Run, other: Run) -> None:
    what = None
    for name in ("analysis", "score"):
        numbers = [run.files.get(name, {}).get("sentences") for run in (first, other)]
        if None not in numbers and numbers[0] != numbers[1]:
            what = f"{numbers[0]} and {numbers[1]} sentences in {name}.json"
    for name in ("train", "analysis"):
        sums = [run.files.get(name, {}).get("data") for run in (first, other)]
        if not all(isinstance(some, dict) for some in sums):
            continue
        tests = [key for key in sums[0] if name == "analysis" or key.startswith("raw/test.")]
        differing = [key for key in tests if key in sums[1] and sums[0][key] != sums[1][key]]
        what = f"other checksums of {differing[0]} in {name}.json" if differing else what
    if what:
        raise InputError(
            f"{first.folder} and {other.folder} have different data ({what}), so they cannot be compared; "
            "report them on separate pages"
        )
