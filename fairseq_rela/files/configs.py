"""Read the YAML files of ``configs/``, the one place where hyperparameters and defaults are written."""

import os
from pathlib import Path
from typing import Any, Dict

from ..errors import InputError

_PACKAGE = Path(__file__).resolve().parents[1]
# names a folder that replaces configs/, such as a copy with your own tasks
FOLDER_VARIABLE = "FAIRSEQ_RELA_CONFIGS"


def config_folder() -> Path:
    """Return the folder ``configs/``: the one that ``FAIRSEQ_RELA_CONFIGS`` names, or :func:`shipped_folder`.

    Raises:
        InputError: there is no such folder, or it has no ``recipe/``.
    """
    own = os.environ.get(FOLDER_VARIABLE)
    if not own:
        return shipped_folder()
    if not (Path(own) / "recipe").is_dir():
        raise InputError(f"{FOLDER_VARIABLE}={own}: no folder with recipe/ in it; give a copy of configs/")
    return Path(own).resolve()


def shipped_folder() -> Path:
    """Return the ``configs/`` of this project: beside the package in a checkout, inside it after an installation.

    Raises:
        InputError: the folder is in neither place.
    """
    for folder in (_PACKAGE.parent / "configs", _PACKAGE / "configs"):
        if (folder / "recipe").is_dir():
            return folder
    raise InputError("the folder configs/ is missing; install fairseq-rela again or run from a checkout")


def load_yaml(group: str, name: str) -> Dict[str, Any]:
    """Return the content of ``configs/GROUP/NAME.yaml`` as plain data.

    Raises:
        InputError: the file is missing or is not a YAML mapping.
    """
    path = config_folder() / group / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.yaml")))
        raise InputError(f"no config {name!r} in {path.parent}; there are {known}")
    return _read(path)


def load_defaults(name: str) -> Dict[str, Any]:
    """Return the content of ``configs/defaults/NAME.yaml``.

    A user's own copy of ``configs/`` may lack the file or entries of it; they are then those of the shipped file.

    Raises:
        InputError: a file is not a YAML mapping, or has an entry that the shipped file lacks or has of another type.
    """
    defaults = _read(shipped_folder() / "defaults" / f"{name}.yaml")
    own = config_folder() / "defaults" / f"{name}.yaml"
    for key, value in (_read(own) if own.is_file() else {}).items():
        if key not in defaults:
            raise InputError(f"{own}: unknown entry {key}; there are {', '.join(defaults)}")
        if {type(value), type(defaults[key])} not in ({int}, {float}, {int, float}, {str}, {list}):
            raise InputError(f"{own}: {key}: {value!r} is not of the type of the default, {defaults[key]!r}")
        defaults[key] = value
    return defaults


def _read(path: Path) -> Dict[str, Any]:
    import yaml  # here, so that `rela --help` does not import it

    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist, or not UTF-8
        raise InputError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: not a mapping of names to values")
    return value
