"""The YAML files of ``configs/``, the one place where hyperparameters are written."""

from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import yaml

from .data.lines import sha256
from .data.prepare import Corpus, Settings
from .errors import InputError
from .evaluation import Decoding

_PACKAGE = Path(__file__).resolve().parent


def config_folder() -> Path:
    """``configs/`` beside the package in a checkout, inside the package where it is installed.

    Raises:
        InputError: it is in neither place.
    """
    for folder in (_PACKAGE.parent / "configs", _PACKAGE / "configs"):
        if (folder / "recipe").is_dir():
            return folder
    raise InputError("the folder configs/ is missing; install fairseq-rela again or run from a checkout")


def task_names() -> List[str]:
    """Names of the tasks: the YAML files at the top of ``configs/``."""
    return sorted(path.stem for path in config_folder().glob("*.yaml"))


def require_task(name: str) -> None:
    """
    Raises:
        InputError: no task has that name.
    """
    if name not in task_names():
        raise InputError(f"no task {name!r}; there are {', '.join(task_names())}")


def load_yaml(group: str, name: str) -> Dict[str, Any]:
    """``configs/GROUP/NAME.yaml`` as plain data.

    Raises:
        InputError: no such file, or not a YAML mapping.
    """
    path = config_folder() / group / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.yaml")))
        raise InputError(f"no config {name!r} in {path.parent}; there are {known}")
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: not a mapping of names to values")
    return value


def load_settings(name: str) -> Settings:
    """How the corpus of a task is prepared."""
    spec = load_yaml("corpus", name)
    try:
        return Settings(spec["source_lang"], spec["target_lang"], **spec["settings"])
    except (KeyError, TypeError) as error:
        raise InputError(f"configs/corpus/{name}.yaml: missing or unknown entry: {error}") from error


def load_corpus(name: str, folder: Path) -> Corpus:
    """The raw files of a task, in a folder that holds them, packed or not.

    Raises:
        InputError: one is missing.
    """
    spec = load_yaml("corpus", name)
    files = {split: (_existing(folder, pair[0]), _existing(folder, pair[1])) for split, pair in spec["files"].items()}
    return Corpus(files, spec.get("expected_pairs", {}))


def load_decoding(name: str = "paper") -> Decoding:
    """How to search, from ``configs/decoding/NAME.yaml``."""
    spec = load_yaml("decoding", name)
    generation = spec["generation"]
    return Decoding(
        beam=generation["beam"],
        gnmt_lenpen=spec["task"]["gnmt_lenpen"],
        max_len_a=generation["max_len_a"],
        max_len_b=generation["max_len_b"],
    )


def checksums(task: str, overrides: Sequence[str] = ()) -> Dict[str, str]:
    """Checksums of the YAML files that Hydra composes for a task.

    Args:
        overrides: of the command line; those of the form ``GROUP=NAME`` choose files.

    Raises:
        InputError: one of the files is missing.
    """
    folder = config_folder()
    chosen = {key: name for key, _, name in (override.partition("=") for override in overrides)}
    files = [f"{task}.yaml"]
    for entry in load_yaml(".", task)["defaults"]:
        if isinstance(entry, dict):
            files += [f"{group}/{chosen.get(group, name)}.yaml" for group, name in entry.items() if " " not in group]
    for name in files:
        if not (folder / name).is_file():
            load_yaml(str(Path(name).parent), Path(name).stem)  # says what there is
    return {name: sha256(folder / name) for name in files}


def _existing(folder: Path, name: str) -> Path:
    alternative: Optional[str] = name[:-3] if name.endswith(".gz") else name + ".gz"
    for candidate in (name, alternative):
        if (folder / candidate).is_file():
            return folder / candidate
    raise InputError(f"{folder / name}: no such file; --raw must be the folder that holds the raw corpus")
