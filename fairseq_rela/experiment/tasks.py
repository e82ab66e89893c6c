"""The tasks: their names, and the data of each, read from its file in ``configs/corpus/``."""

import re
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ..corpora.spec import (
    SPLITS,
    Download,
    Expected,
    Sources,
    is_count,
    parse_downloads,
    parse_expected,
    parse_sources,
)
from ..data.corpus import Corpus
from ..data.settings import Settings
from ..errors import InputError
from ..files.configs import config_folder, load_yaml

# the entries that a corpus file may have
_ENTRIES = {
    *("source_lang", "target_lang", "settings", "choices", "files", "expected_pairs", "kept", "downloads", "gold"),
    *(*SPLITS, "subsets", "reference_length", "train_pairs", "bytes_a_pair"),
}
_NAME = re.compile(r"[A-Za-z0-9_+-]+")


def task_names() -> List[str]:
    """Return the names of the tasks: the YAML files at the top of ``configs/``."""
    return sorted(path.stem for path in config_folder().glob("*.yaml"))


def require_task(name: str) -> None:
    """Raise unless a task has this name.

    Raises:
        InputError: no task has this name.
    """
    if name not in task_names():
        raise InputError(f"no task {name!r}; there are {', '.join(task_names())}")


@dataclass(frozen=True)
class Task:
    """The data of a task, as its file in ``configs/corpus/`` describes it.

    Attributes:
        name: name of the task.
        choices: choice to value, without the default values.
        settings: how the text is prepared.
        downloads: name of a file to its download, which lists the mirrors.
        sources: which archives and members hold the raw text; None if the user provides the text or it is generated.
        files: split to the names of the raw source and target files in a folder provided by the user.
        expected: split to the number of sentence pairs that it must have.
        kept: expected number of training pairs after cleaning, or None.
        gold: name of the raw file with the gold word alignment of the test set, or None.
    """

    name: str
    choices: Mapping[str, str]
    settings: Settings
    downloads: Mapping[str, Download]
    sources: Optional[Sources]
    files: Mapping[str, Tuple[str, str]]
    expected: Mapping[str, int]
    kept: Optional[Expected]
    gold: Optional[str] = None

    @property
    def label(self) -> str:
        """Name of the task's folder; it includes the choices, because other choices give other data."""
        return self.name + "".join(f".{key}-{value}" for key, value in self.choices.items())

    def corpus(self, folder: Path) -> Corpus:
        """Return the raw files in a folder, plain or ``.gz``.

        Raises:
            InputError: a file is missing, or the name of a test subset has special characters.
        """
        files = {split: (_existing(folder, pair[0]), _existing(folder, pair[1])) for split, pair in self.files.items()}
        subsets = {path.name[len("test.") : -len(".lines")]: path for path in sorted(folder.glob("test.*.lines"))}
        _refuse_odd_names(subsets, f"{folder}, test.NAME.lines:")
        return Corpus(files, dict(self.expected), self.kept, subsets)


def load_task(name: str, choose: Tuple[str, ...] = ()) -> Task:
    """Return a task by its name.

    Args:
        name: a name from :func:`task_names`.
        choose: ``KEY=VALUE`` for each choice of data that is not the default.

    Raises:
        InputError: unknown task or choice, or an invalid file; the message names the file and the entry.
    """
    require_task(name)
    spec, chosen = _choose(load_yaml("corpus", name), choose, name)
    where = f"configs/corpus/{name}.yaml"
    try:
        unknown = sorted(str(key) for key in spec if key not in _ENTRIES)
        if unknown:  # misspelt; it would be ignored otherwise
            raise InputError(f"unknown entry {unknown[0]}; there are {', '.join(sorted(_ENTRIES))}")
        _refuse_odd_names(chain(*chosen.items()), "choice")
        settings = Settings(spec["source_lang"], spec["target_lang"], **spec["settings"])
        sources = parse_sources(spec, settings.languages) if "train" in spec else None
        _refuse_odd_names(sources.subsets if sources else (), "subset")
        downloads = parse_downloads(spec.get("downloads") or {})
        kept = parse_expected(spec["kept"], "kept") if "kept" in spec else None
        files = _parse_files(spec.get("files"), settings.languages)
        expected = _parse_counts(spec.get("expected_pairs"))
        gold = _parse_gold(spec.get("gold"))
    except (KeyError, TypeError) as error:
        raise InputError(f"{where}: missing or unknown entry: {error}") from error
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    if sources is None and downloads:
        raise InputError(f"{where}: downloads are given, but no train, valid and test that say what is in them")
    if sources is not None:
        for download in sources.downloads:
            if download not in downloads:
                raise InputError(f"{where}: no download {download}")
        downloads = {download: downloads[download] for download in sources.downloads}
    return Task(
        name=name,
        choices=chosen,
        settings=settings,
        downloads=downloads,
        sources=sources,
        files=files,
        expected=expected or _exact(sources),
        kept=kept,
        gold=gold,
    )


def _refuse_odd_names(names: Iterable[Any], what: str) -> None:
    """Raise if a name has special characters; folders and files are named after it.

    Raises:
        InputError: a name has other characters than letters, digits and ``_ + -``.
    """
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InputError(f"{what} {name!r}: give a name of letters, digits and _ + -")


def _parse_files(files: Any, languages: Tuple[str, str]) -> Dict[str, Tuple[str, str]]:
    if files is None:
        return {split: (f"{split}.{languages[0]}", f"{split}.{languages[1]}") for split in SPLITS}
    pairs = list(files.values()) if isinstance(files, dict) and set(files) == set(SPLITS) else [None]
    if not all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(name, str) and name for name in pair)
        for pair in pairs
    ):
        raise InputError(f"files: give two file names, of source and target, for each of {', '.join(SPLITS)}")
    return {split: (files[split][0], files[split][1]) for split in SPLITS}


def _parse_gold(name: Any) -> Optional[str]:
    if name is not None and (not isinstance(name, str) or not name or Path(name).name != name):
        raise InputError(f"gold: {name!r} is not the name of a file in the folder of the test set")
    return name


def _parse_counts(counts: Any) -> Dict[str, int]:
    if counts is None:
        return {}
    if not isinstance(counts, dict) or not set(counts) <= set(SPLITS) or not all(map(is_count, counts.values())):
        raise InputError(f"expected_pairs: {counts!r} is not a mapping of {', '.join(SPLITS)} to numbers of pairs")
    return counts


def _choose(spec: Dict[str, Any], choose: Sequence[str], name: str) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """Return the entries of the file with the chosen values merged in, and the choices that are not the default."""
    offered = spec.pop("choices", None) or {}
    if not isinstance(offered, dict) or not all(isinstance(options, dict) and options for options in offered.values()):
        raise InputError(
            f"configs/corpus/{name}.yaml: choices: give a mapping of names to what can be chosen, the default first"
        )
    _refuse_odd_names(chain(offered, *offered.values()), f"configs/corpus/{name}.yaml: choice")
    chosen: Dict[str, str] = {}
    for choice in choose:
        key, _, value = choice.partition("=")
        if key in chosen:
            raise InputError(f"--choose {choice}: {key} is chosen twice")
        if key not in offered:
            what = f"offers {', '.join(offered)}" if offered else "offers none"
            raise InputError(f"--choose {choice}: {name} has no such choice; it {what}")
        if value not in offered[key]:
            raise InputError(f"--choose {choice}: choose one of {', '.join(f'{key}={v}' for v in offered[key])}")
        chosen[key] = value
    chosen = {key: chosen[key] for key in sorted(chosen) if chosen[key] != next(iter(offered[key]))}
    for key, value in chosen.items():
        changes = offered[key][value] or {}
        if not isinstance(changes, dict):
            raise InputError(f"configs/corpus/{name}.yaml: choices: {key}: {value}: not a mapping of entries")
        spec = _merged(spec, changes)
    return spec, chosen


def _merged(base: Dict[str, Any], changes: Dict[str, Any]) -> Dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _exact(sources: Optional[Sources]) -> Dict[str, int]:
    """Return the number of pairs of each split for which the exact number is known."""
    if sources is None:
        return {}
    counts = {}
    for split, parts in sources.splits.items():
        known = [part.expected for part in parts if part.expected is not None and not part.expected.tolerance]
        if len(known) == len(parts):
            counts[split] = sum(expected.pairs for expected in known)
    return counts


def _existing(folder: Path, name: str) -> Path:
    alternative = name[:-3] if name.endswith(".gz") else name + ".gz"
    for candidate in (name, alternative):
        if (folder / candidate).is_file():
            return folder / candidate
    raise InputError(f"{folder / name}: no such file; --raw must be the folder that holds the raw corpus")
