"""Start `rela` and fairseq's commands without importing torch and fairseq each time.

A new process takes 4 CPU-seconds for these imports, and the tests start hundreds. Here a server imports the libraries
once, and each command runs in a process that the server forks, with its own folder, environment, files and exit code;
it is killed if its caller is killed. The server imports nothing of this package.

``python()`` gives a program to call in place of Python. It serves ``-m fairseq_cli.NAME``, ``-m fairseq_rela.cli``,
programs of scripts/, and ``-c`` with ``RELA_CODE`` or with code that starts with ``WARM``, each with or without ``-W
ignore``. Other arguments start a new Python as usual, and so do other values of the variables that Python reads when it
starts. With COLD=1 all commands start as usual.
"""

import array
import contextlib
import functools
import gc
import importlib
import importlib.abc
import io
import json
import logging
import os
import runpy
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELA_CODE = "import sys; sys.argv[0] = 'rela'; from fairseq_rela.cli import main; sys.exit(main())"
WARM = "# may find libraries imported"
LIBRARIES = ("torch", "torch.utils.data", "fairseq", "fairseq.checkpoint_utils", "fairseq.options", "fairseq.trainer")
LIBRARIES += ("fairseq.data", "fairseq.dataclass.initialize", "fairseq.logging.progress_bar", "fairseq.sequence_scorer")
LIBRARIES += ("fairseq.model_parallel.megatron_trainer", "fairseq.binarizer", "hydra", "hydra.core.hydra_config")
LIBRARIES += ("hydra._internal.utils", "fairseq.quantization_utils", "sacrebleu", "sacremoses", "entmax", "requests")
# variables that the interpreter or a library reads when it starts
STARTUP = ("PYTHON", "LD_", "LC_", "LANG", "OMP_", "MKL_")
# these may differ; fairseq.data.iterators sets the last one, which hides one warning
MAY_DIFFER = {"PYTHONUNBUFFERED", "OMP_NUM_THREADS", "PYTHONWARNINGS"}
REFUSED = 256  # which is no exit code


@contextlib.contextmanager
def python():
    """Run the server and give the program to call in place of Python; it imports the libraries at the first call."""
    if os.environ.get("COLD") == "1":
        yield sys.executable
        return
    folder = tempfile.mkdtemp(prefix="warm")
    address, program = os.path.join(folder, "socket"), os.path.join(folder, "python")
    with open(program, "w") as file:
        file.write(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{Path(__file__).resolve()}" "{address}" "$@"\n')
    os.chmod(program, 0o755)
    # its standard input ends with this process, and so does the server
    server = subprocess.Popen([sys.executable, __file__, address], stdin=subprocess.PIPE)
    try:
        yield program
    finally:
        server.kill()
        server.wait()
        server.stdin.close()
        shutil.rmtree(folder)


# --- the program that stands for Python --------------------------------------------------------------------------


def call(address, arguments):
    """Run a Python command line by the server, or else by a new Python, and end with its exit code."""
    rest = arguments[2:] if arguments[:2] == ["-W", "ignore"] else arguments
    code = ask(address, {"quiet": rest is not arguments, "arguments": rest}) if is_known(*rest[:2]) else None
    if code is None:
        os.execv(sys.executable, [sys.executable, *arguments])
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def is_known(kind="", what=""):
    """Return whether the server may run a command, by its first two arguments."""
    if kind == "-c":
        return what == RELA_CODE or what.startswith(WARM)
    if kind == "-m":
        return what.startswith(("fairseq_cli.", "fairseq_rela.cli"))
    return kind.startswith(str(ROOT / "scripts"))


def ask(address, request):
    """Return the exit code of the command (negative: a signal), or None if the server leaves it to a new Python."""
    connection = socket.socket(socket.AF_UNIX)
    for _ in range(500):  # the server may be starting
        if connection.connect_ex(address) == 0:
            break
        time.sleep(0.02)
    else:
        sys.exit("tests/warm.py: the server does not answer")
    program = os.path.join(os.path.dirname(address), "python")
    request.update(cwd=os.getcwd(), env=dict(os.environ), python=program)
    text = json.dumps(request).encode()
    files = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))
    connection.sendmsg([struct.pack("<I", len(text))], [files])
    connection.sendall(text)
    answer = connection.recv(4)
    if not answer:
        sys.exit("tests/warm.py: the server has ended")
    (code,) = struct.unpack("<i", answer)
    return None if code == REFUSED else code


# --- the server --------------------------------------------------------------------------------------------------


def receive(connection):
    """Return a request and its three open files, or None and the files if the caller has ended before it was sent."""
    head, ancillary, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(12))
    files = list(array.array("i", ancillary[0][2])) if ancillary else []
    text, part = b"", head
    while part and len(text) < struct.unpack("<I", head)[0]:
        part = connection.recv(65536)
        text += part
    return json.loads(text.decode()) if part else None, files


def is_served(environment, own):
    """Return whether a fork of this process can stand for a new Python with an environment."""
    names = {name for name in {*environment, *own} if name.startswith(STARTUP)} - MAY_DIFFER
    return all(
        environment.get(name) == own.get(name) or name == "PYTHONPATH" and environment.get(name) == str(ROOT)
        for name in names
    )


@functools.lru_cache(maxsize=None)
def load_libraries():
    for library in LIBRARIES:
        with contextlib.suppress(ModuleNotFoundError):  # another version of fairseq
            importlib.import_module(library)
    logging.getLogger().handlers.clear()  # importing fairseq turns on all messages; see Messages
    logging.getLogger().setLevel(logging.WARNING)
    gc.collect()
    gc.freeze()


class Messages(importlib.abc.MetaPathFinder):
    """Turns on all messages, as the import of fairseq does, which in a new Python comes after this module."""

    def find_spec(self, name, path, target=None):
        if name == "fairseq_rela.compat":
            logging.basicConfig(level=logging.DEBUG)
        return None


class Server:
    """Forks a process for each request, and kills it if the caller ends first."""

    def __init__(self, address):
        self.own = dict(os.environ)
        self.running = {}  # connection to the caller: process
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(address)
        self.listener.listen(64)
        self.woken, self.wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake, warn_on_full_buffer=False)
        self.selector = selectors.DefaultSelector()
        for file in (sys.stdin, self.listener, self.woken):
            self.selector.register(file, selectors.EVENT_READ)

    def serve(self):
        """Answer requests; return in each forked process, with its request."""
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is sys.stdin:
                    os._exit(0)  # the tests have ended
                elif key.fileobj == self.woken:
                    os.read(self.woken, 4096)
                    self.answer_ended()
                elif key.fileobj is self.listener:
                    request = self.accept()
                    if request is not None:
                        return request
                elif key.fileobj in self.running:  # the caller has ended
                    self.selector.unregister(key.fileobj)
                    os.kill(self.running[key.fileobj], signal.SIGKILL)

    def accept(self):
        """Fork a process for the next request; return the request there, and None in this process."""
        connection, _ = self.listener.accept()
        request, files = receive(connection)
        pid = None
        if request is not None and is_served(request["env"], self.own):
            load_libraries()
            pid = os.fork()
        if pid == 0:
            self.close(connection)
            for number, file in enumerate(files):
                os.dup2(file, number)
        elif pid is None:
            with connection, contextlib.suppress(OSError):
                connection.sendall(struct.pack("<i", REFUSED))
        else:
            self.running[connection] = pid
            self.selector.register(connection, selectors.EVENT_READ)
        for file in files:
            os.close(file)
        return request if pid == 0 else None

    def close(self, connection):
        """Leave what belongs to the server, in a forked process."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.selector.close()
        for each in (self.listener, connection, *self.running):
            each.close()
        os.close(self.woken)
        os.close(self.wake)

    def answer_ended(self):
        """Send the exit codes of processes that have ended."""
        for connection, pid in list(self.running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self.running[connection]
                code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                with contextlib.suppress(KeyError):  # the caller has ended
                    self.selector.unregister(connection)
                with contextlib.suppress(OSError):
                    connection.sendall(struct.pack("<i", code))
                connection.close()


def open_streams():
    """Open the standard streams as Python does when it starts; those of the server were made for other files."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        was, file = getattr(sys, name), open(number, "wb" if number else "rb", closefd=False)  # noqa: SIM115
        how = dict(line_buffering=number == 2 or file.isatty(), write_through="PYTHONUNBUFFERED" in os.environ)
        stream = io.TextIOWrapper(file, was.encoding, was.errors, **how)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def become(request):
    """Run a request in this process, a new one, as Python would have run it."""
    os.chdir(request["cwd"])
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(request["env"])
    added = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    kind, *rest = request["arguments"]
    first = {"-c": "", "-m": os.getcwd()}.get(kind, os.path.dirname(kind))
    sys.path[:] = [first, *added, *(part for part in sys.path[1:] if part not in path)]
    sys.argv = [kind, *rest[1:]] if kind.startswith("-") else [kind, *rest]
    sys.executable = request["python"]  # commands that this one starts are served, too
    if request["quiet"]:
        warnings.simplefilter("ignore")
        sys.warnoptions.append("ignore")
    sys.meta_path.insert(0, Messages())
    open_streams()
    torch, numpy = sys.modules["torch"], sys.modules["numpy"]
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    numpy.random.seed()
    tempfile.tempdir = None
    if kind == "-c":
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    elif kind == "-m":
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        call(sys.argv[1], sys.argv[2:])
    become(Server(sys.argv[1]).serve())
