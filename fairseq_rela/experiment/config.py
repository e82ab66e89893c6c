"""Read the YAML files of ``configs/``, the one place where hyperparameters are written."""

import os
import re
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import yaml

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
from ..data.prepare import Corpus
from ..data.settings import Settings
from ..errors import InputError
from ..files.records import sha256
from .evaluation import Decoding

_PACKAGE = Path(__file__).resolve().parents[1]
# names a folder that replaces configs/, such as a copy with your own tasks
FOLDER_VARIABLE = "FAIRSEQ_RELA_CONFIGS"


def config_folder() -> Path:
    """Return the folder ``configs/``: beside the package in a checkout, inside it after an installation.

    The environment variable ``FAIRSEQ_RELA_CONFIGS`` names another folder.

    Raises:
        InputError: the folder is in none of these places.
    """
    own = os.environ.get(FOLDER_VARIABLE)
    if own:
        if not (Path(own) / "recipe").is_dir():
            raise InputError(f"{FOLDER_VARIABLE}={own}: no folder with recipe/ in it; give a copy of configs/")
        return Path(own).resolve()
    for folder in (_PACKAGE.parent / "configs", _PACKAGE / "configs"):
        if (folder / "recipe").is_dir():
            return folder
    raise InputError("the folder configs/ is missing; install fairseq-rela again or run from a checkout")


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


def load_yaml(group: str, name: str) -> Dict[str, Any]:
    """Return the content of ``configs/GROUP/NAME.yaml`` as plain data.

    Raises:
        InputError: the file is missing or is not a YAML mapping.
    """
    path = config_folder() / group / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.yaml")))
        raise InputError(f"no config {name!r} in {path.parent}; there are {known}")
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist, or not UTF-8
        raise InputError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: not a mapping of names to values")
    return value


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
        _refuse_unknown(spec)
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
        unknown = [download for download in sources.downloads if download not in downloads]
        if unknown:
            raise InputError(f"{where}: no download {unknown[0]}")
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


# the entries that a corpus file may have
_ENTRIES = {
    *("source_lang", "target_lang", "settings", "choices", "files", "expected_pairs", "kept", "downloads", "gold"),
    *(*SPLITS, "subsets", "reference_length", "train_pairs", "bytes_a_pair"),
}


_NAME = re.compile(r"[A-Za-z0-9_+-]+")


def _refuse_odd_names(names: Iterable[Any], what: str) -> None:
    """Raise if a name has special characters; folders and files are named after it.

    Raises:
        InputError: a name has other characters than letters, digits and ``_ + -``.
    """
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InputError(f"{what} {name!r}: give a name of letters, digits and _ + -")


def _refuse_unknown(spec: Dict[str, Any]) -> None:
    """Raise if an entry is unknown; a misspelt entry would otherwise be ignored.

    Raises:
        InputError: an entry is not in ``_ENTRIES``.
    """
    unknown = sorted(str(key) for key in spec if key not in _ENTRIES)
    if unknown:
        raise InputError(f"unknown entry {unknown[0]}; there are {', '.join(sorted(_ENTRIES))}")


def _parse_files(files: Any, languages: Tuple[str, str]) -> Dict[str, Tuple[str, str]]:
    if files is None:
        return {split: (f"{split}.{languages[0]}", f"{split}.{languages[1]}") for split in SPLITS}
    sound = isinstance(files, dict) and set(files) == set(SPLITS)
    for pair in files.values() if sound else ():
        sound = sound and isinstance(pair, list) and len(pair) == 2
        sound = sound and all(isinstance(name, str) and name for name in pair)
    if not sound:
        raise InputError(f"files: give two file names, of source and target, for each of {', '.join(SPLITS)}")
    return {split: (files[split][0], files[split][1]) for split in SPLITS}


def _parse_gold(name: Any) -> Optional[str]:
    if name is not None and (not isinstance(name, str) or not name or Path(name).name != name):
        raise InputError(f"gold: {name!r} is not the name of a file beside the test set")
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
    chosen = {}
    seen: Set[str] = set()
    for choice in choose:
        key, _, value = choice.partition("=")
        if key in seen:
            raise InputError(f"--choose {choice}: {key} is chosen twice")
        seen.add(key)
        if key not in offered:
            what = f"offers {', '.join(offered)}" if offered else "offers none"
            raise InputError(f"--choose {choice}: {name} has no such choice; it {what}")
        if value not in offered[key]:
            raise InputError(f"--choose {choice}: choose one of {', '.join(f'{key}={v}' for v in offered[key])}")
        if value != next(iter(offered[key])):
            chosen[key] = value
    for key in sorted(chosen):
        changes = offered[key][chosen[key]] or {}
        if not isinstance(changes, dict):
            raise InputError(f"configs/corpus/{name}.yaml: choices: {key}: {chosen[key]}: not a mapping of entries")
        spec = _merged(spec, changes)
    return spec, {key: chosen[key] for key in sorted(chosen)}


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


def load_decoding(name: str = "paper") -> Decoding:
    """Return the search settings of ``configs/decoding/NAME.yaml``.

    Raises:
        InputError: the file is missing, or an entry is missing or invalid.
    """
    spec = load_yaml("decoding", name)
    try:
        generation = spec["generation"]
        decoding = Decoding(
            beam=generation["beam"],
            gnmt_lenpen=spec["task"]["gnmt_lenpen"],
            max_len_a=generation["max_len_a"],
            max_len_b=generation["max_len_b"],
        )
    except (KeyError, TypeError) as error:
        raise InputError(f"configs/decoding/{name}.yaml: missing or unknown entry: {error}") from error
    return decoding.check()


def checksums(task: str, overrides: Sequence[str] = ()) -> Dict[str, str]:
    """Return the SHA-256 checksum of each YAML file that Hydra composes for a task.

    Args:
        task: a name from :func:`task_names`.
        overrides: Hydra overrides; those of the form ``GROUP=NAME`` choose files.

    Raises:
        InputError: one of the files is missing.
    """
    return {name: sha256(config_folder() / name) for name in _composed(task, overrides)}


_PACKAGE_LINE = re.compile(r"(?:#.*\n)*?# @package (\S+)")  # among the comments at the top of a file
# settings that name places and not models
_PLACES = ("hydra.", "common.user_dir", "task.data", "checkpoint.save_dir")


def composed_values(task: str, overrides: Sequence[str] = ()) -> Dict[str, Any]:
    """Return the settings that Hydra composes for a task, before other overrides, such as ``{"model.dropout": 0.1}``.

    Interpolations stay as they are written. Settings that name folders, and Hydra's own, are left out.

    Args:
        overrides: of the command line; those of the form ``GROUP=NAME`` choose files.

    Raises:
        InputError: one of the files is missing.
    """
    found: Dict[str, Any] = {}
    for name in _composed(task, overrides)[1:]:
        header = _PACKAGE_LINE.match((config_folder() / name).read_text(encoding="utf-8"))
        package = header.group(1) if header else str(Path(name).parent)
        prefix = "" if package == "_global_" else f"{package}."
        found.update(_flat(load_yaml(str(Path(name).parent), Path(name).stem), prefix))
    return {key: found[key] for key in sorted(found) if not key.startswith(_PLACES)}


def _flat(values: Dict[str, Any], prefix: str) -> Iterator[Tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _composed(task: str, overrides: Sequence[str]) -> List[str]:
    folder = config_folder()
    chosen = {key: name for key, _, name in (override.partition("=") for override in overrides)}
    files = [f"{task}.yaml"]
    for entry in load_yaml(".", task)["defaults"]:
        if isinstance(entry, dict):
            files += [f"{group}/{chosen.get(group, name)}.yaml" for group, name in entry.items() if " " not in group]
    for name in files:
        if not (folder / name).is_file():
            load_yaml(str(Path(name).parent), Path(name).stem)  # raises an error that lists the existing files
    return files


def _existing(folder: Path, name: str) -> Path:
    alternative = name[:-3] if name.endswith(".gz") else name + ".gz"
    for candidate in (name, alternative):
        if (folder / candidate).is_file():
            return folder / candidate
    raise InputError(f"{folder / name}: no such file; --raw must be the folder that holds the raw corpus")
