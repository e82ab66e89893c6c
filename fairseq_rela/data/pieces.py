"""Make BPE pieces from the tokens of a data folder: learn codes and vocabularies, split the words."""

import time
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from ..corpora.spec import SPLITS
from ..errors import InputError
from ..files.lines import LineBlock, read_byte_lines, read_parallel_blocks
from ..files.outputs import write_whole
from ..files.workers import Map, worker_pool
from ..text import bpe
from ..text.learn_bpe import learn
from .draft import BLOCK, Draft, encode_lines, progress, write_sides
from .folder import CODES
from .settings import MAX_POSITIONS, Settings


def learn_pieces(draft: Draft) -> List[bpe.Segmenter]:
    """Write ``bpecodes``, learnt on both languages together, and ``vocab.LANG``.

    Returns:
        a segmenter for each language, which holds the pieces of the frequent words, so that each of these is split
        only once for all processes.
    """
    settings, path = draft.settings, draft.path
    with worker_pool(draft.workers) as run:
        words = list(run(bpe.count_words_of, draft.text("train")))
    print(f"learning {settings.merges:,} BPE merges from {sum(map(len, words)):,} words", flush=True)
    start = time.monotonic()
    codes = learn(words[0] + words[1], settings.merges)
    print(f"learn BPE: {len(codes) - 1:,} merges in {time.monotonic() - start:.1f} s", flush=True)
    with write_whole(path / CODES) as file:
        file.writelines(line + "\n" for line in codes)
    plain = bpe.load_segmenter(path / CODES)
    segmenters = []
    for lang, counts in zip(settings.languages, words):
        frequent_last = counts.most_common()[::-1]  # the segmenter keeps the words that it has split last
        vocabulary = bpe.count_pieces((plain[word], count) for word, count in frequent_last)
        bpe.write_vocabulary(path / f"vocab.{lang}", vocabulary)
        segmenters.append(plain.limit(vocabulary, settings.vocabulary_threshold))
    return segmenters


def make_pieces(draft: Draft, segmenters: List[bpe.Segmenter], counts: Dict[str, Dict[str, Any]]) -> None:
    """Write the pieces of all splits to ``bpe/``, and drop training pairs with too many pieces, also from ``text/``.

    Args:
        draft: the data folder.
        segmenters: one for each language.
        counts: the counts of each split, to which those of this step are added.

    Raises:
        InputError: a dev or test sentence has too many pieces, or no training pair is left.
    """
    with worker_pool(draft.workers, _initialise, segmenters, draft.settings) as run:
        for split in SPLITS:
            dropped, per_word = _make_split(run, draft, split)
            if dropped:
                counts[split]["kept"] -= dropped
                counts[split]["removed"]["long in pieces"] = dropped
            counts[split]["pieces_per_word"] = per_word


class _Pieces(NamedTuple):
    """A block of pairs after BPE.

    Attributes:
        sides: the pieces of both sides, each line with its LF.
        pairs: number of pairs before any were dropped.
        dropped: numbers of the lines that were dropped because they have too many pieces, from 0 in the file.
        words, pieces: number of words and of pieces on each side, of the pairs that were kept.
    """

    sides: List[bytes]
    pairs: int
    dropped: List[int]
    words: List[int]
    pieces: List[int]


def _make_split(run: Map, draft: Draft, split: str) -> Tuple[int, Dict[str, float]]:
    """Return the number of pairs that were dropped, and the pieces per word of each language."""
    words, pieces, dropped, pairs = [0, 0], [0, 0], [], 0
    source, target = draft.text(split)
    with write_sides(draft.bpe(split)) as files, progress(f"{split}: BPE", "pairs") as advance:
        for block in run(partial(_segment, split), read_parallel_blocks(source, target, BLOCK)):
            for side, file in enumerate(files):
                file.write(block.sides[side])
                words[side] += block.words[side]
                pieces[side] += block.pieces[side]
            dropped += block.dropped
            pairs += block.pairs
            advance(block.pairs)
    if len(dropped) == pairs:
        raise InputError(f"{split}: every pair has more than {draft.settings.max_pieces} pieces; raise --max-pieces")
    if dropped:
        _drop_lines(source, dropped)
        _drop_lines(target, dropped)
    return len(dropped), {
        lang: round(pieces[side] / max(words[side], 1), 4) for side, lang in enumerate(draft.settings.languages)
    }


_worker: Dict[str, Any] = {}


def _initialise(segmenters: Sequence[bpe.Segmenter], settings: Settings) -> None:
    _worker["segmenters"], _worker["max_pieces"] = segmenters, settings.max_pieces


def _segment(split: str, pair: Tuple[LineBlock, LineBlock]) -> _Pieces:
    start, texts = pair[0].start, [block.decode() for block in pair]
    sides = [list(map(segmenter.process_line, text)) for segmenter, text in zip(_worker["segmenters"], texts)]
    longest = _worker["max_pieces"] if split == "train" else MAX_POSITIONS - 1
    dropped = [number for number, lines in enumerate(zip(*sides)) if max(map(_count, lines)) > longest]
    if dropped and split != "train":
        raise InputError(
            f"{split}, line {start + dropped[0] + 1}: more pieces than the {longest} that the model has room for; "
            "shorten or split the sentence"
        )
    for number in reversed(dropped):
        for lines in (*texts, *sides):
            del lines[number]
    return _Pieces(
        list(map(encode_lines, sides)),
        len(pair[0]),
        [start + number for number in dropped],
        [sum(map(_count, text)) for text in texts],
        [sum(map(_count, side)) for side in sides],
    )


def _count(line: str) -> int:
    """Return the number of tokens of a line."""
    return line.count(" ") + 1 if line else 0


def _drop_lines(text: Path, numbers: Sequence[int]) -> None:
    without = set(numbers)
    with write_whole(text, "wb") as file:
        file.writelines(line + b"\n" for i, line in enumerate(read_byte_lines(text)) if i not in without)
