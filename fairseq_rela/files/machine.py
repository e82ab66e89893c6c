"""The machine and the versions of software of a measurement, for its record."""

import platform
from importlib import metadata
from pathlib import Path
from typing import Dict, Sequence

from .. import __version__


def processor() -> str:
    """Return the processor's name from ``/proc/cpuinfo``, or from Python's ``platform`` if it is not there."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions(distributions: Sequence[str]) -> Dict[str, str]:
    """Return the versions of Python, of this package, and of installed distributions.

    Args:
        distributions: names of distributions; those that are not installed are left out.
    """
    return {"python": platform.python_version(), "fairseq_rela": __version__, **installed(distributions)}


def installed(distributions: Sequence[str]) -> Dict[str, str]:
    """Return the versions of distributions; those that are not installed are left out."""
    found = {}
    for name in distributions:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
