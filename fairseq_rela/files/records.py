"""Read and write records, which are files of JSON, and compute checksums of files."""

import hashlib
import json
from pathlib import Path
from typing import Any, Dict, Sequence

from tqdm import tqdm

from ..errors import InputError
from .lines import PathLike
from .outputs import write_whole


def write_json(path: PathLike, value: Any) -> None:
    """Write a value as JSON, in UTF-8 and indented by two spaces.

    Raises:
        InputError: the file cannot be written.
    """
    # file names may be invalid UTF-8: such bytes become JSON escapes, which read_json turns back
    with write_whole(path, "wb") as file:
        text = json.dumps(value, indent=2, ensure_ascii=False, sort_keys=False)
        file.write(f"{text}\n".encode("utf-8", "backslashreplace"))


def read_json(path: PathLike) -> Any:
    """Return the content of a JSON file.

    Raises:
        InputError: the file is missing or not JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise InputError(f"{path}: not valid JSON ({error}); remove it and run the step again") from error


def read_record(path: PathLike) -> Dict[str, Any]:
    """Return the content of a record of this package, a file with one JSON object.

    Raises:
        InputError: the file is missing or not a JSON object.
    """
    record = read_json(path)
    if not isinstance(record, dict):
        raise InputError(f"{path}: not a record of this package, which is a JSON object; move it away or make it again")
    return record


def is_done(path: PathLike, made_of: Dict[str, Any]) -> bool:
    """Return whether a result is there, which was made of the same inputs and settings.

    Args:
        path: the record of the result; its entry ``made_of`` has what it was made of.
        made_of: what it would be made of now.

    Raises:
        InputError: the result was made of something else.
    """
    if not Path(path).is_file():
        return False
    old = read_record(path).get("made_of", {})
    different = [key for key in made_of if old.get(key) != made_of[key]]
    if different:
        raise InputError(f"{path} was made with another {' and '.join(different)}; remove it, or give another --output")
    return True


def checksums(path: PathLike, algorithms: Sequence[str], progress: bool = False) -> Dict[str, str]:
    """Return checksums of a file in hexadecimal, by the names of their algorithms in ``hashlib``.

    Raises:
        InputError: the file cannot be read.
    """
    digests = {name: hashlib.new(name) for name in algorithms}
    bar: Any = dict(desc=f"check {Path(path).name}", unit="B", unit_scale=True, leave=False)
    try:
        size = Path(path).stat().st_size
        with open(path, "rb") as file, tqdm(total=size, disable=None if progress else True, **bar) as shown:
            for block in iter(lambda: file.read(1 << 20), b""):
                for digest in digests.values():
                    digest.update(block)
                shown.update(len(block))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    return {name: digest.hexdigest() for name, digest in digests.items()}


def sha256(path: PathLike) -> str:
    """Return the SHA-256 checksum of a file in hexadecimal.

    Raises:
        InputError: the file cannot be read.
    """
    return checksums(path, ["sha256"])["sha256"]
