"""A local HTTP server of files with configurable faults, which a download must survive or refuse.

with FileServer({"/a.tgz": data}) as server:
    server.faults["/a.tgz"] = Fault(cut=1000, times=1)
    get(server.url("/a.tgz"))
    assert server.requests[-1].range == "bytes=1000-"
"""

import hashlib
import io
import socket
import tarfile
import threading
import time
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Union

PAGE = b"<!DOCTYPE html>\n<html><body>Not here any more</body></html>\n"
MODIFIED = "Mon, 05 Mar 2018 10:00:00 GMT"


def tar_of(members: Dict[str, bytes], compression: str = "gz") -> bytes:
    """Return a tar with these members; compression is ``gz``, ``bz2``, ``xz`` or none."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{compression}") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zip_of(members: Dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@dataclass
class Fault:
    """The faults of a path; several may be combined.

    Attributes:
        times: for how many requests (HEAD does not count), None for all.
        status: answer with this status and no file.
        cut: close the connection after so many bytes of each body.
        wrong: as many bytes, but with other values.
        html: answer with a web page and status 200 instead of the file.
        html_type: call the page, or the file, text/html.
        pause, block: seconds before each block of so many bytes.
        ranges: False to ignore Range requests.
        shift: a partial answer that begins so many bytes late.
        validators: False to send neither ETag nor Last-Modified.
        etag: send this ETag instead of the content's.
        if_range: False to ignore If-Range and always give partial answers.
        length: ``chunked`` or ``close``: how the end of the body is marked without Content-Length.
        headers: headers to add or to replace.
    """

    times: Optional[int] = None
    status: int = 200
    cut: Optional[int] = None
    wrong: bool = False
    html: bool = False
    html_type: bool = True
    pause: float = 0.0
    block: int = 1 << 16
    ranges: bool = True
    shift: int = 0
    validators: bool = True
    etag: Optional[str] = None
    if_range: bool = True
    length: str = "stated"
    headers: Dict[str, str] = field(default_factory=dict)


class Request(NamedTuple):
    method: str
    path: str
    range: Optional[str]


class FileServer:
    """Serves ``files``, path to bytes or a folder, from a free port of this machine until the context ends.

    ``files`` and ``faults`` may be changed while it runs; ``requests`` lists the requests in order of arrival.
    """

    def __init__(self, files: Union[Dict[str, bytes], Path]):
        if isinstance(files, Path):
            paths = (path for path in sorted(files.rglob("*")) if path.is_file())
            files = {"/" + path.relative_to(files).as_posix(): path.read_bytes() for path in paths}
        self.files: Dict[str, bytes] = files
        self.faults: Dict[str, Fault] = {}
        self.requests: List[Request] = []
        self._lock = threading.Lock()

    def __enter__(self) -> "FileServer":
        handler = type("Handler", (_Handler,), {"files": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._server.shutdown()
        self._server.server_close()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}{path}"

    def gets(self, path: str) -> List[Optional[str]]:
        """Return the Range header of each GET of a path."""
        return [request.range for request in self.requests if request[:2] == ("GET", path)]

    def note(self, request: Request) -> Fault:
        """Record a request and return its fault."""
        with self._lock:
            self.requests.append(request)
            fault = self.faults.get(request.path)
            if fault is None or fault.times == 0:
                return Fault()
            if fault.times is not None and request.method == "GET":
                fault.times -= 1
            return fault


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Ignore clients that close the connection, which is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    files: FileServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        fault = self.files.note(Request(self.command, self.path, self.headers["Range"]))
        content = self.files.files.get(self.path)
        if fault.status != 200 or content is None:
            self._send(404 if fault.status == 200 else fault.status, b"no such luck\n", {}, fault)
            return
        kind = "application/octet-stream"
        if fault.html:
            content = PAGE
            kind = "text/html; charset=utf-8" if fault.html_type else kind
        if fault.wrong:
            content = bytes(255 - byte for byte in content)
        headers = {"Content-Type": kind}
        etag = fault.etag or f'"{hashlib.md5(content).hexdigest()}"'
        if fault.validators:
            headers.update({"ETag": etag, "Last-Modified": MODIFIED})
        start = self._start(fault, etag)
        if start is None:
            self._send(200, content, headers, fault)
        elif start >= len(content):
            self._send(416, b"", {"Content-Range": f"bytes */{len(content)}"}, fault)
        else:
            start += fault.shift
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self._send(206, content[start:], headers, fault)

    def _start(self, fault: Fault, etag: str) -> Optional[int]:
        """Return the byte where a partial answer begins, None for the whole file."""
        wanted, condition = self.headers["Range"], self.headers["If-Range"]
        if not wanted or not fault.ranges:
            return None
        same = condition in (None, etag, MODIFIED) and not (condition or "").startswith("W/")
        if fault.if_range and not same:
            return None
        return int(wanted[len("bytes=") :].rstrip("-"))

    def _send(self, status: int, body: bytes, headers: Dict[str, str], fault: Fault) -> None:
        ending = {"stated": ("Content-Length", str(len(body))), "chunked": ("Transfer-Encoding", "chunked")}
        name, value = ending.get(fault.length, ("Connection", "close"))
        self.send_response(status)
        for item in {**headers, name: value, **fault.headers}.items():
            self.send_header(*item)
        self.end_headers()
        if self.command == "HEAD":
            return
        for start in range(0, len(body), fault.block):
            block = body[start : start + fault.block]
            time.sleep(fault.pause)
            if fault.cut is not None and start + len(block) >= fault.cut:
                self._write(block[: fault.cut - start], fault)
                self._hang_up()
                return
            self._write(block, fault)
        if fault.length == "chunked":
            self.wfile.write(b"0\r\n\r\n")

    def _write(self, block: bytes, fault: Fault) -> None:
        if fault.length == "chunked" and block:
            block = b"%x\r\n%s\r\n" % (len(block), block)
        self.wfile.write(block)

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
