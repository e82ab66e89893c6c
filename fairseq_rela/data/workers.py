"""Work on all cores, in order, in bounded memory; a process that dies is an error and not a silence."""

import ctypes
import os
import signal
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from threading import Thread
from typing import Any, Callable, Deque, Iterable, Iterator, List, Optional, TypeVar

from ..errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")
Map = Callable[[Callable[..., Any], Iterable[Any]], Iterator[Any]]
_AHEAD = 4  # blocks for each process that wait to be worked on or collected


@contextmanager
def worker_pool(number: int, initialise: Optional[Callable[..., None]] = None, *arguments: Any) -> Iterator[Map]:
    """A ``map`` over processes, each initialised where asked for; with one, the work is done in this process.

    Raises:
        InputError: a process was killed, for want of memory most likely.
    """
    if number == 1:
        if initialise is not None:
            initialise(*arguments)
        yield lambda function, blocks: map(function, blocks)
        return
    with ProcessPoolExecutor(number, initializer=_initialise, initargs=(os.getpid(), initialise, arguments)) as pool:

        def ordered(function: Callable[..., Any], blocks: Iterable[Any]) -> Iterator[Any]:
            waiting: "Deque[Future]" = deque()
            try:
                for block in blocks:
                    waiting.append(pool.submit(_work, function, block))
                    if len(waiting) >= _AHEAD * number:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            except BrokenProcessPool as error:
                raise InputError(
                    "a process that worked on the text was killed, for want of memory perhaps; give fewer --workers"
                ) from error
            finally:
                for future in waiting:
                    future.cancel()

        yield ordered


def blocks(items: Iterable[Item], size: int) -> Iterator[List[Item]]:
    """Lists of ``size`` items, the last one shorter."""
    items = iter(items)
    while True:
        block = list(islice(items, size))
        if not block:
            return
        yield block


def begin(number: int, function: Callable[..., Result], *arguments: Any) -> Callable[[], Result]:
    """Begin a piece of work beside that of a pool of ``number`` processes, in a thread of this one.

    The work may not use a pool itself: Linux has a process die with the thread that has started it.

    Returns:
        what waits for the result, and raises what the work has raised. With one process it does the work then. The
        thread ends with this process: work whose result nobody waits for any more keeps nobody waiting.
    """
    if number == 1:
        return lambda: function(*arguments)
    future: "Future[Result]" = Future()

    def work() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:  # of whatever kind, it is for the one who waits
            future.set_exception(error)

    Thread(target=work, daemon=True).start()
    return future.result


def die_with_parent(parent: int) -> None:
    """Have Linux kill this process when its parent dies, even by kill -9: or it would go on, or wait for ever."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    except (OSError, AttributeError):
        return  # not Linux
    if os.getppid() != parent:
        os._exit(1)


def _initialise(parent: int, initialise: Optional[Callable[..., None]], arguments: Any) -> None:
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers to Ctrl-C
    if initialise is not None:
        try:
            initialise(*arguments)
        except InputError as error:  # or the pool would only know that a process has ended
            _refused.append(error)


_refused: List[InputError] = []


def _work(function: Callable[[Any], Any], block: Any) -> Any:
    if _refused:
        raise _refused[0]
    return function(block)
