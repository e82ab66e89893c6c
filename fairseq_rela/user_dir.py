"""The folder for fairseq's ``--user-dir``: this plugin, or a folder of the user that imports the plugin."""

import hashlib
import importlib
import os
import sys
from pathlib import Path
from typing import Dict

from .errors import InputError

# names the user's folder; `rela --user-dir FOLDER` sets it, so that the processes of a command have it too
VARIABLE = "FAIRSEQ_RELA_USER_DIR"
PLUGIN = Path(__file__).resolve().parent


def user_dir() -> Path:
    """Return the folder for fairseq's ``--user-dir``: the user's own one if there is one, else this plugin."""
    own = os.environ.get(VARIABLE)
    return Path(own).resolve() if own else PLUGIN


def load_user_code() -> None:
    """Import the user's folder, which registers variants; without one, do nothing.

    Raises:
        InputError: the folder is not a Python package, it cannot be imported, or another module has its name.
    """
    folder = user_dir()
    if folder == PLUGIN:
        return
    if not (folder / "__init__.py").is_file():
        raise InputError(f"--user-dir {folder}: no __init__.py in it; give the folder of your own attention")
    if str(folder.parent) not in sys.path:
        sys.path.insert(0, str(folder.parent))
    try:
        module = importlib.import_module(folder.name)
    except InputError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"--user-dir {folder}: cannot be imported ({type(error).__name__}: {reason})") from error
    if Path(str(module.__file__)).resolve().parent != folder:
        raise InputError(f"--user-dir {folder}: {folder.name} is the name of {module.__file__}; rename the folder")


def user_code() -> Dict[str, str]:
    """Return the SHA-256 checksums of the Python files in the user's folder, without tests; empty if there is none.

    They are recorded with a run, because a run with other code is another run.

    Returns:
        the path of each file, relative to the folder, to its checksum in hexadecimal.
    """
    folder = user_dir()
    if folder == PLUGIN:
        return {}
    files = (path for path in sorted(folder.rglob("*.py")) if not path.name.startswith("test_"))
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
