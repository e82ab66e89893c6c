"""The settings that Hydra composes for a task from the files of ``configs/``, for the record of a run."""

import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from ..files.configs import config_folder, load_yaml
from ..files.records import sha256


def attention_overrides(attention: str) -> List[str]:
    """Return the Hydra overrides that choose an attention; the user's own attention has no file in ``configs/``."""
    shipped = (config_folder() / "attention" / f"{attention}.yaml").is_file()
    return [f"attention={attention}" if shipped else f"model.attention={attention}"]


def checksums(task: str, overrides: Sequence[str] = ()) -> Dict[str, str]:
    """Return the SHA-256 checksum of each YAML file that Hydra composes for a task.

    Args:
        task: a name from :func:`fairseq_rela.experiment.tasks.task_names`.
        overrides: Hydra overrides; those of the form ``GROUP=NAME`` choose files.

    Raises:
        InputError: one of the files is missing.
    """
    return {name: sha256(config_folder() / name) for name in _composed(task, overrides)}


_PACKAGE_LINE = re.compile(r"(?:#.*\n)*?# @package (\S+)")  # among the comments at the top of a file
# settings that name places and not models
_PLACES = ("hydra.", "common.user_dir", "task.data", "checkpoint.save_dir", "checkpoint.finetune_from_model")


def composed_values(task: str, overrides: Sequence[str] = ()) -> Dict[str, Any]:
    """Return the settings that Hydra composes for a task, before other overrides, such as ``{"model.dropout": 0.1}``.

    Interpolations stay as they are written. Settings that name folders, and Hydra's own, are left out.

    Args:
        task: a name from :func:`fairseq_rela.experiment.tasks.task_names`.
        overrides: Hydra overrides; those of the form ``GROUP=NAME`` choose files.

    Raises:
        InputError: one of the files is missing.
    """
    found: Dict[str, Any] = {}
    for name in _composed(task, overrides)[1:]:
        header = _PACKAGE_LINE.match((config_folder() / name).read_text(encoding="utf-8"))
        package = header.group(1) if header else str(Path(name).parent)
        prefix = "" if package == "_global_" else f"{package}."
        found.update(_flat(load_yaml(str(Path(name).parent), Path(name).stem), prefix))
    return {key: found[key] for key in sorted(found) if not key.startswith(_PLACES) and key != "defaults"}


def update_tokens(task: str, overrides: Sequence[str] = ()) -> Optional[int]:
    """Return the largest number of tokens of an update, or None if the files do not limit the tokens of a batch.

    It is the product of the tokens of a batch, the batches of an update, and the GPUs.

    Args:
        task: a name from :func:`fairseq_rela.experiment.tasks.task_names`.
        overrides: Hydra overrides; those of the form ``GROUP=NAME`` choose files, and others are ignored.
    """
    return _update_tokens(composed_values(task, overrides))


def _update_tokens(values: Dict[str, Any]) -> Optional[int]:
    tokens, batches = values.get("dataset.max_tokens"), values.get("optimization.update_freq", [1])
    return tokens and tokens * batches[0] * values.get("distributed_training.distributed_world_size", 1)


def runs_with_updates_of(tokens: int) -> List[str]:
    """Return the files of ``configs/run/`` with this number of tokens an update."""
    names = sorted(path.stem for path in (config_folder() / "run").glob("*.yaml") if path.stem != "slurm")
    return [name for name in names if _update_tokens(dict(_flat(load_yaml("run", name), ""))) == tokens]


def _flat(values: Dict[str, Any], prefix: str) -> Iterator[Tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _composed(task: str, overrides: Sequence[str]) -> List[str]:
    """Return the YAML files that Hydra composes, relative to ``configs/``; the file of the task comes first."""
    folder = config_folder()
    chosen = {key: name for key, _, name in (override.partition("=") for override in overrides)}
    files = [f"{task}.yaml"]
    for entry in load_yaml(".", task)["defaults"]:
        if isinstance(entry, dict):
            files += [f"{group}/{chosen.get(group, name)}.yaml" for group, name in entry.items() if " " not in group]
    # Hydra appends a group that the task's file does not name, such as +start=softmax
    files += [
        f"{key[1:]}/{name}.yaml" for key, name in chosen.items() if key[:1] == "+" and (folder / key[1:]).is_dir()
    ]
    return [nested for name in files for nested in (*_defaults_of(name), name)]


def _defaults_of(name: str) -> List[str]:
    """Return the files of its own group on which a file of ``configs/`` builds, as ``run/slurm`` does on ``run/gpu4``.

    Raises:
        InputError: the file is missing; the message lists those that exist.
    """
    group = Path(name).parent
    entries = load_yaml(str(group), Path(name).stem).get("defaults", [])
    return [str(group / f"{entry}.yaml") for entry in entries if isinstance(entry, str) and group.name]
