"""Score all pairs of a corpus in several processes and in bounded memory."""

import hashlib
import os
import time
from contextlib import closing, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Tuple

import torch
from tqdm import tqdm

from ..errors import InputError
from ..files.lines import LineBlock, read_parallel_blocks
from ..files.workers import Map, blocks, worker_pool
from .pair_encoder import Encoded, PairEncoder
from .pair_scorer import PairScorer, Score
from .score_file import ScoreFile, row

BLOCK = 1000  # pairs that a process scores at a time, in batches of pairs with similar lengths
WINDOW = 20  # blocks that are encoded in parallel and then scored together on a GPU
Blocks = Iterable[Tuple[LineBlock, LineBlock]]


def inspect(source: Path, target: Path) -> Tuple[int, Tuple[str, str]]:
    """Return the number of pairs and the SHA-256 checksums of the lines of both files.

    The files are read completely before the scoring, which may take hours, so that errors in them show at once.

    Raises:
        InputError: the files are empty, not UTF-8 or of unequal length.
    """
    digests = hashlib.sha256(), hashlib.sha256()
    pairs = 0
    with tqdm(desc="read both files", unit=" pairs", unit_scale=True, disable=None, leave=False) as bar:
        for both in read_parallel_blocks(source, target, 20 * BLOCK):
            for digest, block in zip(digests, both):
                block.decode()
                digest.update(block.content)
            pairs += len(both[0])
            bar.update(len(both[0]))
    if not pairs:
        raise InputError(f"{source}: no lines to rank; give a file with text")
    return pairs, (digests[0].hexdigest(), digests[1].hexdigest())


def block_size(scorer: PairScorer) -> int:
    """Return the number of pairs from which batches are made and after which scores are written."""
    return BLOCK if in_processes(scorer) else BLOCK * WINDOW


def in_processes(scorer: PairScorer) -> bool:
    """Return whether each process has its own model; on a GPU there is one model, and the processes only encode."""
    return scorer.device.type == "cpu"


def score_corpus(
    scorer: PairScorer, source: Path, target: Path, output: ScoreFile, state: Dict[str, Any], workers: int
) -> None:
    """Write the scores of all pairs, or of those that an interrupted run has left.

    Args:
        scorer: the model.
        source, target: text of both sides, plain or ``.gz``.
        output: file to write.
        state: see :class:`ScoreFile`.
        workers: most processes.

    Raises:
        InputError: a file has changed since it was inspected, or the scores cannot be written.
    """
    pairs = state["pairs"]
    start = time.monotonic()
    try:
        number = done = output.resume(state)
        if done:
            print(f"{output.partial}: {done:,} of {pairs:,} pairs are already scored; continuing", flush=True)
        todo = islice(read_parallel_blocks(source, target, BLOCK), done // BLOCK, None)
        results = _score_blocks(scorer, todo, min(workers, -(-(pairs - done) // BLOCK) or 1))
        bar = tqdm(total=pairs, initial=done, desc="rank", unit=" pairs", unit_scale=True, disable=None, leave=False)
        with open(output.partial, "ab") as file, closing(results), bar:
            for scores in results:
                file.write(b"".join(map(row, range(number, number + len(scores)), scores)))
                file.flush()
                number += len(scores)
                bar.update(len(scores))
            os.fsync(file.fileno())
        if number != pairs:
            raise InputError(
                f"{source} or {target} has changed while it was read; remove {output.partial} and start again"
            )
        output.finish()
    except OSError as error:
        raise InputError(f"{output.partial}: cannot be written ({error.strerror or error})") from error
    seconds = max(time.monotonic() - start, 1e-3)
    rate = (pairs - done) / seconds
    print(f"{output.path}: {pairs - done:,} pairs in {seconds:.1f} s, {rate:,.1f} a second", flush=True)


_worker: Dict[str, Any] = {}  # the scorer or encoder of this process


def _score_blocks(scorer: PairScorer, todo: Blocks, workers: int) -> Iterator[List[Score]]:
    """Yield the scores of each block of pairs, or on a GPU of each window of blocks."""
    if in_processes(scorer):
        with _threads_restored(), worker_pool(workers, _take_scorer, scorer) as run:
            yield from run(_score_block, todo)
    else:
        with worker_pool(workers, _take_encoder, scorer.encode) as run, closing(_encoded(run, todo)) as encoded:
            for window in blocks(encoded, WINDOW):
                yield scorer.score_encoded(list(chain.from_iterable(window)))


def _encoded(run: Map, todo: Blocks) -> Iterator[List[Encoded]]:
    yield from run(_encode_block, todo)  # a generator, because closing() needs one


@contextmanager
def _threads_restored() -> Iterator[None]:
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _take_scorer(scorer: PairScorer) -> None:
    # one thread for each process, so that the scores do not depend on the number of processes
    torch.set_num_threads(1)
    _worker["encode"], _worker["score"] = scorer.encode, scorer.score_encoded


def _take_encoder(encode: PairEncoder) -> None:
    _worker["encode"] = encode


def _encode_block(pair: Tuple[LineBlock, LineBlock]) -> List[Encoded]:
    return _worker["encode"](pair[0].decode(), pair[1].decode())


def _score_block(pair: Tuple[LineBlock, LineBlock]) -> List[Score]:
    return _worker["score"](_encode_block(pair))
