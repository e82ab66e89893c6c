"""Run work in several processes, with ordered results and bounded memory; a killed process raises an error."""

import ctypes
import os
import signal
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from typing import Any, Callable, Deque, Iterable, Iterator, List, Optional, TypeVar

from ..errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")
Map = Callable[[Callable[..., Any], Iterable[Any]], Iterator[Any]]
_AHEAD = 4  # blocks per process that are submitted and not yet collected


@contextmanager
def worker_pool(number: int, initialise: Optional[Callable[..., None]] = None, *arguments: Any) -> Iterator[Map]:
    """Yield a function like ``map`` that works in several processes and returns the results in order.

    Args:
        number: number of processes. With 1, this process does the work itself.
        initialise: function that is called once with ``arguments`` in each process before the work, or None.

    Raises:
        InputError: a process was killed, most likely because memory ran out.
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
                    "a worker process was killed, perhaps because memory ran out; give fewer --workers"
                ) from error
            finally:
                for future in waiting:
                    future.cancel()

        yield ordered


def blocks(items: Iterable[Item], size: int) -> Iterator[List[Item]]:
    """Yield lists of ``size`` items; the last list may be shorter."""
    items = iter(items)
    while True:
        block = list(islice(items, size))
        if not block:
            return
        yield block


def die_with_parent(parent: int) -> None:
    """Make Linux kill this process when its parent, whose process id is ``parent``, dies, even by ``kill -9``.

    Otherwise the process would continue, or wait forever. On other systems this function does nothing.
    """
    try:
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    except (OSError, AttributeError):
        return  # not Linux
    if os.getppid() != parent:
        os._exit(1)


def _initialise(parent: int, initialise: Optional[Callable[..., None]], arguments: Any) -> None:
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    if initialise is not None:
        try:
            initialise(*arguments)
        except InputError as error:  # _work raises it; the pool would only report a dead process
            _refused.append(error)


_refused: List[InputError] = []


def _work(function: Callable[[Any], Any], block: Any) -> Any:
    if _refused:
        raise _refused[0]
    return function(block)
