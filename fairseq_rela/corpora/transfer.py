"""Transfer one URL to a file: resume, retry, and notice if the file has changed on the server."""

import logging
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Any, Dict, Iterator, Optional

import requests
import urllib3
from tqdm import tqdm

from ..errors import InputError
from ..files.outputs import remove_half_written
from ..files.records import read_json, write_json

logging.getLogger("urllib3").setLevel(logging.WARNING)  # importing fairseq turns on all debug messages
_BLOCK = 1 << 16
_TRIES = 5  # failed attempts in a row, at one mirror, after which the next mirror is tried
_TIMEOUT = 60.0  # seconds without a byte after which an attempt fails
_LONGEST_PAUSE = 60  # seconds between attempts
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "fairseq-rela"}  # Content-Length is the file's size
_NETWORK_ERRORS = (requests.RequestException, urllib3.exceptions.HTTPError)
_REASONS = (
    ((requests.Timeout, urllib3.exceptions.TimeoutError), "no answer in time"),
    (requests.exceptions.SSLError, "its certificate is not accepted"),
    (requests.exceptions.ConnectionError, "it cannot be reached"),
    (urllib3.exceptions.ProtocolError, "the connection was cut"),
)


class Failed(Exception):
    """Raised when a URL cannot be transferred."""


class _Interrupted(Failed):
    """Raised when an attempt failed and another one, after ``pause`` seconds, may succeed."""

    pause = 0


class Part:
    """The bytes of one URL so far, ``NAME.part`` (``NAME.1.part`` of a second URL), and their state ``.part.json``.

    The state has ``url``, ``version`` (ETag or Last-Modified) and ``total`` (bytes, None if unknown).
    """

    def __init__(self, path: Path, number: int, url: str):
        self.path = path.with_name(f"{path.name}.{number}.part" if number else f"{path.name}.part")
        self.sidecar = self.path.with_name(self.path.name + ".json")
        self.url = url

    @property
    def size(self) -> int:
        """Number of bytes that are there."""
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def begun(self) -> int:
        """Number of bytes from which the download can be resumed; 0 if the server gave no version of the file."""
        return self.size if self.load()["version"] else 0

    def load(self) -> Dict[str, Any]:
        """Return the state, or a new one if the bytes came from elsewhere."""
        with suppress(InputError):
            state = read_json(self.sidecar)
            if isinstance(state, dict) and state.keys() == {"url", "version", "total"} and state["url"] == self.url:
                return state
        return {"url": self.url, "version": None, "total": None}

    def save(self, version: Optional[str], total: Optional[int]) -> None:
        """Write the state."""
        write_json(self.sidecar, {"url": self.url, "version": version, "total": total})

    def remove(self) -> None:
        """Remove the bytes and the state."""
        remove_half_written(self.sidecar)
        self.path.unlink(missing_ok=True)
        self.sidecar.unlink(missing_ok=True)


def transfer(part: Part) -> None:
    """Download a URL, in several attempts if necessary.

    An attempt that receives new bytes restarts the count of failures, so that an unreliable connection suffices.

    Raises:
        Failed: several attempts in a row failed, or another one cannot succeed.
    """
    failures, most = 0, part.begun
    while part.size != part.load()["total"]:
        try:
            _receive(part)
        except _Interrupted as error:
            failures = 1 if part.size > most else failures + 1
            most = max(most, part.size)
            if failures >= _TRIES:
                raise Failed(f"{error}, after {failures} tries") from error
            sleep(max(error.pause, 2 ** (failures - 1)))


def size_on_server(url: str) -> Optional[int]:
    """Return the size in bytes that a server reports for a URL, or None."""
    with suppress(Failed), _ask("HEAD", url, timeout=_TIMEOUT / 6) as response:
        return _length(response)
    return None


def _receive(part: Part) -> None:
    """Make one attempt to download the rest of a URL, from the end of the part on."""
    state, offset = part.load(), part.begun
    with _ask("GET", part.url, offset) as response:
        length, version = _length(response), response.headers.get("ETag") or response.headers.get("Last-Modified")
        if response.status_code == 200:
            offset = 0
        elif (
            not response.headers.get("Content-Range", "").startswith(f"bytes {offset}-")
            or version != state["version"]
            or (length is not None and state["total"] not in (None, offset + length))
        ):
            part.save(None, None)  # so the next attempt starts this URL again
            raise _Interrupted("the file has changed on the server, or the server cannot resume")
        total = None if length is None else offset + length
        bar: Any = dict(total=total, initial=offset, desc=part.path.stem, unit="B", unit_scale=True, disable=None)
        with open(part.path, "r+b" if part.path.exists() else "wb") as file, tqdm(**bar) as progress:
            file.truncate(offset)
            file.seek(offset)
            part.save(version, total)  # after the cut, because it describes the bytes that are left
            for block in _blocks(response):
                file.write(block)
                file.flush()  # so that nothing is lost when the process is killed
                progress.update(len(block))
    if total is not None and part.size != total:
        raise _Interrupted(f"the connection was cut after {part.size} of {total} bytes")
    part.save(version, part.size)


def _ask(method: str, url: str, offset: int = 0, timeout: Optional[float] = None) -> Any:
    """Request a URL from byte ``offset`` on; return a response of status 200, or of 206 or 416 if ``offset`` > 0."""
    headers = {**_HEADERS, "Range": f"bytes={offset}-"} if offset else _HEADERS
    try:
        response = requests.request(method, url, headers=headers, stream=True, timeout=timeout or _TIMEOUT)
    except (*_NETWORK_ERRORS, ValueError) as error:  # requests raises ValueError for a redirect to no address
        raise _Interrupted(_reason(error)) from error
    status, page = response.status_code, "text/html" in response.headers.get("Content-Type", "").lower()
    if (status == 200 and not page) or (offset and status in (206, 416)):
        return response
    response.close()
    if status < 500 and status != 429:
        raise Failed("a web page instead of the file" if status == 200 else f"status {status}")
    busy, pause = _Interrupted(f"status {status}"), response.headers.get("Retry-After", "")
    busy.pause = min(int(pause), _LONGEST_PAUSE) if pause.isdecimal() else 0
    raise busy


def _blocks(response: Any) -> Iterator[bytes]:
    """Yield the body as it was sent: statmt.org, like many servers, labels a tgz as Content-Encoding gzip."""
    try:
        yield from iter(lambda: response.raw.read(_BLOCK, decode_content=False), b"")
    except _NETWORK_ERRORS as error:
        raise _Interrupted(_reason(error)) from error


def _length(response: Any) -> Optional[int]:
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() and len(length) < 19 else None


def _reason(error: Exception) -> str:
    return next((reason for kinds, reason in _REASONS if isinstance(error, kinds)), " ".join(str(error).split())[:200])
