"""The definition of a study, its rows and its jobs, as read from ``configs/study/NAME.yaml``."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..errors import InputError
from ..experiment.tasks import require_task
from ..files.configs import config_folder, load_yaml
from ..report.paper import TABLE_1
from ..variants import SITES, find_variant, parse_sites

GOLD_KINDS = ("gold", "silver")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_ENTRIES = ("task", "baseline", "seeds", "overrides", "gold", "gold_kind", "ranking", "rows")
_ROW_ENTRIES = ("label", "attention", "sites", "overrides", "table_1", "seeds", "start")


class Row(NamedTuple):
    """A row of a study: a model that is trained with several seeds.

    Attributes:
        label: name of the row, unique in the study.
        attention: a variant name.
        sites: name of a file in ``configs/sites/``; None for the task's default, all sites.
        overrides: Hydra overrides, with those of the whole study first.
        table_1: row number in the paper's Table 1, or None if the paper has no such model.
        seeds: seeds of the runs.
        start: label of an earlier row, whose averaged model of the same seed starts the model; None for a new model.
    """

    label: str
    attention: str
    sites: Optional[str]
    overrides: Tuple[str, ...]
    table_1: Optional[int]
    seeds: Tuple[int, ...]
    start: Optional[str] = None

    @property
    def attention_sites(self) -> List[str]:
        """The sites that use the variant, in the order of :data:`fairseq_rela.variants.SITES`."""
        text = ",".join(SITES) if self.sites is None else load_yaml("sites", self.sites)["attention_sites"]
        return [site for site in SITES if site in parse_sites(text)]

    @property
    def settings(self) -> Tuple[str, ...]:
        """The Hydra overrides of the row's runs, without the attention and the seed."""
        sites = () if self.sites is None else (f"sites={self.sites}",)
        return (*sites, *self.overrides)


class Job(NamedTuple):
    """One run of a study: a row with a seed."""

    row: Row
    seed: int

    @property
    def name(self) -> str:
        """The name of the run in messages and files, such as ``rela_g.seed-1``."""
        return f"{self.row.label}.seed-{self.seed}"

    @property
    def start(self) -> Optional[str]:
        """The name of the run whose model starts this one, or None."""
        return None if self.row.start is None else f"{self.row.start}.seed-{self.seed}"

    @property
    def overrides(self) -> Tuple[str, ...]:
        """All Hydra overrides of the run; they also name its folder, which the studies of a task share."""
        return (*self.row.settings, f"common.seed={self.seed}")


@dataclass(frozen=True)
class Study:
    """The definition of a study: models that are trained with several seeds and compared with a baseline.

    Attributes:
        name: name of its file in ``configs/study/``.
        task: name of a task of ``configs/``.
        baseline: label of the row that the others are compared with.
        rows: the rows, in the order in which they are shown.
        gold: name of the file with the word alignment of the test set in the study's folder; None if the task has
            its own or there is none.
        gold_kind: "gold", "silver" if a program made the alignment, or None if there is none.
        ranking: whether to measure how well each model finds damaged pairs of the test set.
    """

    name: str
    task: str
    baseline: str
    rows: Tuple[Row, ...]
    gold: Optional[str]
    gold_kind: Optional[str]
    ranking: bool = False

    @property
    def jobs(self) -> List[Job]:
        """The runs in the order of training: the first seed of every row, then the second, and so on."""
        rounds = max(len(row.seeds) for row in self.rows)
        return [Job(row, row.seeds[i]) for i in range(rounds) for row in self.rows if i < len(row.seeds)]


def study_names() -> List[str]:
    """Return the names of the studies that ``configs/study/`` holds."""
    return sorted(path.stem for path in (config_folder() / "study").glob("*.yaml"))


def load_study(name: str, overrides: Tuple[str, ...] = ()) -> Study:
    """Return a study by its name.

    Args:
        name: a name from :func:`study_names`.
        overrides: Hydra overrides for every run, added after the study's own.

    Raises:
        InputError: no such study, or its file is invalid; the message names the entry.
    """
    values = load_yaml("study", name)
    try:
        return _parse(name, values, overrides)
    except InputError as error:
        raise InputError(f"configs/study/{name}.yaml: {error}") from error


def _parse(name: str, values: Dict[str, Any], overrides: Tuple[str, ...]) -> Study:
    _refuse_unknown(values, _ENTRIES, "")
    for key in ("task", "baseline", "rows"):
        if not values.get(key):
            raise InputError(f"{key} is missing; give it")
    require_task(values["task"])
    common = (*_strings(values.get("overrides"), "overrides"), *overrides)
    seeds = _seeds(values.get("seeds"), "seeds") if "seeds" in values else ()
    if not isinstance(values["rows"], list):
        raise InputError("rows: give a list of rows")
    rows = tuple(_row(row, number, common, seeds) for number, row in enumerate(values["rows"], 1))
    labels = [row.label for row in rows]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f"rows: two rows have the label {label}; give each row its own")
    if values["baseline"] not in labels:
        raise InputError(f"baseline {values['baseline']!r} is not the label of a row; give one of {', '.join(labels)}")
    same: Dict[Any, str] = {}
    for row in rows:
        twin = same.setdefault((row.attention, row.sites, row.overrides, row.start), row.label)
        if twin != row.label:
            raise InputError(f"rows: {twin} and {row.label} are the same model; leave one out")
    _refuse_starts(rows)
    gold, kind = values.get("gold"), values.get("gold_kind")
    if gold is not None and (not isinstance(gold, str) or Path(gold).name != gold):
        raise InputError(f"gold: {gold!r} is not the name of a file; give the name of one in the study's folder")
    if kind is not None and kind not in GOLD_KINDS:
        raise InputError(f"gold_kind: {kind!r}; give {' or '.join(GOLD_KINDS)}")
    if gold is not None and kind is None:
        raise InputError(f"gold_kind is missing; give {' or '.join(GOLD_KINDS)}")
    ranking = values.get("ranking", False)
    if not isinstance(ranking, bool):
        raise InputError(f"ranking: {ranking!r}; give true or false")
    return Study(name, values["task"], values["baseline"], rows, gold, kind, ranking)


def _refuse_starts(rows: Sequence[Row]) -> None:
    """Raise if a row starts from a row that does not stand before it, or that lacks one of its seeds."""
    before: Dict[str, Row] = {}
    for row in rows:
        if row.start is not None and row.start not in before:
            raise InputError(f"rows: {row.label} starts from {row.start!r}, which is not the label of an earlier row")
        missing = set(row.seeds) - set(before[row.start].seeds) if row.start else set()
        if missing:
            raise InputError(f"rows: {row.label} starts from {row.start}, which lacks the seed {min(missing)}; add it")
        before[row.label] = row


def _refuse_unknown(values: Dict[str, Any], known: Tuple[str, ...], where: str) -> None:
    unknown = [str(key) for key in values if key not in known]
    if unknown:
        raise InputError(f"{where}unknown entry {unknown[0]}; choose from {', '.join(known)}")


def _row(values: Any, number: int, common: Tuple[str, ...], seeds: Tuple[int, ...]) -> Row:
    where = f"row {number}: "
    if not isinstance(values, dict):
        raise InputError(f"{where}not a mapping; give {', '.join(_ROW_ENTRIES)}")
    _refuse_unknown(values, _ROW_ENTRIES, where)
    label, attention = values.get("label"), values.get("attention")
    if not isinstance(label, str) or not _LABEL.fullmatch(label):
        raise InputError(f"{where}label {label!r}: give a name of letters, digits and _ . + -")
    if not isinstance(attention, str):
        raise InputError(f"{where}attention is missing; give the name of a variant")
    find_variant(attention)
    table_1 = values.get("table_1")
    if table_1 is not None and table_1 not in [row.row for row in TABLE_1]:
        raise InputError(f"{where}table_1: {table_1!r} is not a row of Table 1; give a number from 1 to {len(TABLE_1)}")
    own = _seeds(values["seeds"], f"{where}seeds") if "seeds" in values else seeds
    if not own:
        raise InputError(f"{where}no seeds; give seeds for the row or for the study")
    overrides = (*common, *_strings(values.get("overrides"), f"{where}overrides"))
    if any(override.startswith("+start=") for override in overrides):
        raise InputError(f"{where}overrides: instead of +start, give the row `start:` with the label of another row")
    row = Row(label, attention, values.get("sites"), overrides, table_1, own, values.get("start"))
    row.attention_sites  # noqa: B018  raises for unknown sites
    return row


def _strings(values: Any, where: str) -> Tuple[str, ...]:
    if values is None:
        return ()
    if not isinstance(values, list) or not all(isinstance(value, str) and "=" in value for value in values):
        raise InputError(f"{where}: give a list of KEY=VALUE")
    return tuple(values)


def _seeds(values: Any, where: str) -> Tuple[int, ...]:
    sound = isinstance(values, list) and values and all(type(value) is int and value > 0 for value in values)
    if not sound or len(set(values)) != len(values):
        raise InputError(f"{where}: give a list of different whole numbers above 0")
    return tuple(values)
