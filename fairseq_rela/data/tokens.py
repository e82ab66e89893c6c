"""Make the tokens of a data folder from raw text: normalise, tokenise, and clean the training text."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Tuple

from ..corpora.spec import SPLITS
from ..errors import InputError
from ..files.lines import LineBlock, read_parallel_blocks
from ..files.workers import Map, worker_pool
from ..text.preprocess import repair_tokens
from . import clean
from .corpus import Corpus
from .draft import BLOCK, Draft, encode_lines, progress, write_sides
from .folder import make_preprocessor
from .settings import Settings


class _Tokens(NamedTuple):
    """A block of pairs after tokenisation and cleaning.

    Attributes:
        sides: the lines of both sides that were kept, each with its LF.
        pairs: number of pairs that were kept.
        removed: number of pairs that each rule removed.
    """

    sides: Tuple[bytes, bytes]
    pairs: int
    removed: Dict[str, int]


def make_tokens(corpus: Corpus, draft: Draft, moses: Optional[Path]) -> Dict[str, Dict[str, Any]]:
    """Write the tokens of all splits to ``text/``.

    Args:
        corpus: the raw files.
        draft: the data folder.
        moses: a checkout of Moses, whose scripts are then used, or None.

    Returns:
        for each split, the numbers of pairs that were read, kept, and removed by each rule.

    Raises:
        InputError: a number is not as expected, or no pair is left.
    """
    with worker_pool(draft.workers, _initialise, draft.settings, moses) as run:
        return {split: _make_split(run, corpus, draft, split) for split in SPLITS}


def _make_split(run: Map, corpus: Corpus, draft: Draft, split: str) -> Dict[str, Any]:
    removed: "Counter[str]" = Counter(dict.fromkeys(clean.RULES, 0))
    duplicates = clean.Duplicates() if draft.settings.remove_duplicates and split == "train" else None
    source, target = corpus.files[split]
    read = kept = 0
    with write_sides(draft.text(split)) as files, progress(f"{split}: normalise, tokenise", "pairs") as advance:
        for sides, pairs, dropped in run(partial(_tokenise, split), read_parallel_blocks(source, target, BLOCK)):
            removed.update(dropped)
            read += pairs + sum(dropped.values())
            advance(pairs + sum(dropped.values()))
            if duplicates is not None:
                sides, left = duplicates.drop(sides)
                removed["duplicate"] += pairs - left
                pairs = left
            kept += pairs
            for file, side in zip(files, sides):
                file.write(side)
    _check_counts(corpus, split, read, kept, removed)
    return {"read": read, "kept": kept, "removed": dict(removed)}


def _check_counts(corpus: Corpus, split: str, read: int, kept: int, removed: Dict[str, int]) -> None:
    source = corpus.files[split][0]
    expected = corpus.expected.get(split)
    if expected is not None and read != expected:
        raise InputError(f"{split}: {source} has {read} pairs, {expected} are expected; is the file complete?")
    if not kept:
        hint = clean.ratio_hint(removed["ratio"], read)
        raise InputError(f"{split}: no pair is left of the {read} in {source}" + (f"; {hint}" if hint else ""))
    if split == "train" and corpus.kept is not None and not corpus.kept.allows(kept):
        rules = ", ".join(f"{rule} {n:,}" for rule, n in removed.items() if n)
        raise InputError(
            f"train: {kept:,} pairs are left after cleaning ({rules}), {corpus.kept} are expected; "
            "are the raw text and the settings those of the task?"
        )


_worker: Dict[str, Any] = {}


def _initialise(settings: Settings, moses: Optional[Path]) -> None:
    for split in SPLITS:
        tokeniser = "none" if split in settings.tokenised else settings.tokeniser
        _worker[split] = [make_preprocessor(settings, lang, tokeniser, moses) for lang in settings.languages]
    _worker["settings"] = settings


def _tokenise(split: str, pair: Tuple[LineBlock, LineBlock]) -> _Tokens:
    settings = _worker["settings"]
    sides = [block.decode() for block in pair]
    if split in settings.tokenised:
        sides = [[repair_tokens(line) for line in side] for side in sides]
    sides = [preprocess.process_lines(side) for preprocess, side in zip(_worker[split], sides)]
    removed: "Counter[str]" = Counter()
    if split == "train":
        rules = [clean.why_removed(source, target, settings) for source, target in zip(*sides)]
        removed.update(filter(None, rules))
        sides = [[line for line, rule in zip(side, rules) if rule is None] for side in sides]
    return _Tokens((encode_lines(sides[0]), encode_lines(sides[1])), len(sides[0]), removed)
