"""Make binarised data from raw parallel text on all cores: normalise, tokenise, clean, truecase, BPE, binarise."""

import gzip
import io
import os
import platform
import re
import shutil
import time
import unicodedata
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from tqdm import tqdm

from ..corpora.spec import SPLITS, Expected
from ..errors import InputError
from ..files.commands import refuse_misread
from ..files.lines import LineBlock, count_lines, read_byte_lines, read_lines, read_parallel_blocks
from ..files.outputs import work_folder, write_whole
from ..files.plain_text import refuse_not_text
from ..files.records import sha256, write_json
from ..files.workers import Map, begin, blocks, worker_pool
from ..text import bpe, truecase
from ..text.learn_bpe import Learned, learn
from ..text.preprocess import repair_tokens
from .binarise import binarise
from .folder import RECORD, TRUECASE_MODEL, DataFolder, make_preprocessor
from .settings import MAX_POSITIONS, Settings

_BLOCK = 2000
_MANY = 0.05  # warn if the ratio rule removes this share of the training pairs; text in words loses less
_LONGEST_WORD = 1000  # characters; the limit of Moses' clean-corpus-n for training pairs
_RULES = ("empty", "long", "ratio", "duplicate", "long in pieces")
_TOOLS = (*("sacremoses", "subword-nmt", "jieba", "regex", "ve-fairseq", "fairseq", "fairseq-fixed", "fairseq-rela"),)
_DISK = 3.0  # bytes of a data folder per byte of raw text, rounded up
_SPEED, _SPEED_OF_JIEBA = 1e6, 0.5e6  # bytes of raw text per second and core


@dataclass
class Corpus:
    """The raw files of a task.

    Attributes:
        files: for each split (``train``, ``valid``, ``test``), its source and target file, plain or ``.gz``.
        expected: for each split, the number of pairs that it must have, if known.
        kept: the number of training pairs that must be left after cleaning, if known.
        subsets: for each subset of the test set that gets its own score, a file of the numbers of its lines, from 0.
    """

    files: Dict[str, Tuple[Path, Path]]
    expected: Dict[str, int] = field(default_factory=dict)
    kept: Optional[Expected] = None
    subsets: Dict[str, Path] = field(default_factory=dict)


def prepare(
    corpus: Corpus, settings: Settings, output: Path, workers: Optional[int] = None, moses: Optional[Path] = None
) -> Dict[str, Any]:
    """Make the data folder ``output``, or reuse it if it was made from the same files and settings.

    The folder holds fairseq's binarised data and dictionaries; ``bpecodes``, ``vocab.LANG`` and, with truecasing,
    ``truecase-model.LANG``; the unchanged dev and test sets under ``raw/``, the tokens under ``text/`` and the pieces
    under ``bpe/``; and ``prepare.json``, the record of versions, settings, counts and checksums.

    Args:
        corpus: the raw files.
        settings: how to prepare them.
        output: the data folder.
        workers: number of processes; all cores if None.
        moses: a checkout of Moses, whose scripts then normalise and tokenise; they give the same tokens.

    Returns:
        the record.

    Raises:
        InputError: if files or settings are wrong, counts are unequal or not as expected, or ``output`` was made from
            something else.
    """
    workers = workers or os.cpu_count() or 1
    refuse_misread(output.resolve())
    for split in SPLITS:
        if split not in corpus.files:
            raise InputError(f"no files for the {split} set; give --{split}")
    inputs = _input_checksums(corpus, settings.languages, workers)
    for path in corpus.subsets.values():
        _check_subset(path, corpus.files["test"][0])
    done = _finished(output, settings, inputs)
    if done is not None:
        print(f"{output}: already prepared from the same files and settings")
        return done

    for files in corpus.files.values():
        for path in files:
            refuse_not_text(path)
    with work_folder(output) as work:
        _say_what_it_takes(corpus, settings, output.parent, workers)
        record: Dict[str, Any] = {
            "settings": settings.record(),
            "inputs": inputs,
            "versions": _versions(moses),
            "splits": {},
        }
        with worker_pool(workers, _initialise_text, settings, moses) as run:
            record["splits"]["train"] = _make_text(run, corpus, settings, work, "train")
            if not settings.truecase:
                words = _count_words(run, settings, work)
                learned = begin(workers, _learn_bpe, words, settings)
            # in one of the workers, so that this process has a core to learn BPE on
            for counts, said in run(partial(_make_small_texts, corpus, settings), [work]):
                print(said, end="", flush=True)
                record["splits"].update(counts)
        if settings.truecase:
            _truecase(workers, settings, work)
            with worker_pool(workers) as run:
                words = _count_words(run, settings, work)
            learned = partial(_learn_bpe, words, settings)
        segmenters = _make_segmenters(settings, work, learned(), words)
        with worker_pool(workers, _initialise_bpe, segmenters, settings) as run:
            pieces = {split: _apply_bpe(run, settings, work, split) for split in SPLITS}
        for split, (dropped, pieces_per_word) in pieces.items():
            counts = record["splits"][split]
            if dropped:
                counts["kept"] -= dropped
                counts["removed"]["long in pieces"] = dropped
            counts["pieces_per_word"] = pieces_per_word
        _binarise(workers, settings, work, record["splits"])
        for name, path in corpus.subsets.items():
            shutil.copyfile(path, work / "raw" / f"test.{name}.lines")
        outputs = [path for path in sorted(work.rglob("*")) if path.is_file() and path.suffix != ".log"]
        checksums = _checksums(outputs, workers)
        record["outputs"] = {str(path.relative_to(work)): checksum for path, checksum in checksums.items()}
        write_json(work / RECORD, record)
    return record


def describe(record: Dict[str, Any]) -> str:
    """Return the counts of a record as text, one line for each split, with warnings.

    A line warns if the ratio rule removed many pairs, or the test set is split into far more pieces than the
    training text.
    """
    lines = []
    for split, counts in record["splits"].items():
        removed = ", ".join(f"{rule} {n:,}" for rule, n in counts["removed"].items() if n)
        pieces = ", ".join(f"{lang} {value:.2f}" for lang, value in counts["pieces_per_word"].items())
        unknown = ", ".join(f"{lang} {value:.2%}" for lang, value in counts["unknown"].items() if value)
        lines.append(
            f"{split}: {counts['kept']:,} of {counts['read']:,} pairs"
            + (f" (removed: {removed})" if removed else "")
            + f"; pieces a word: {pieces}"
            + (f"; unknown pieces: {unknown}" if unknown else "")
        )
    counts = record["splits"]["train"]
    if counts["removed"].get("ratio", 0) >= _MANY * counts["read"]:
        lines.append(f"warning: {_ratio_hint(counts['removed']['ratio'], counts['read'])}")
    train, test = record["splits"]["train"]["pieces_per_word"], record["splits"]["test"]["pieces_per_word"]
    for lang in train:
        if test[lang] > 1.5 * train[lang]:
            lines.append(
                f"warning: {test[lang]:.2f} pieces a word of {lang} in the test set, {train[lang]:.2f} in the training "
                "text: are they of the same language, tokenised in the same way?"
            )
    return "\n".join(lines)


def _ratio_hint(removed: int, read: int) -> str:
    return (
        f"the ratio rule removed {removed / read:.0%} of the training pairs: is a side written without spaces, as "
        "Chinese? Segment it into words (--tokeniser moses does so by jieba), or raise --max-ratio"
    )


# --- text --------------------------------------------------------------------------------------------------------

_worker: Dict[str, Any] = {}


class _Text(NamedTuple):
    """A block of pairs after tokenisation and cleaning.

    Attributes:
        sides: the lines of both sides that were kept, each with its LF.
        pairs: number of pairs that were kept.
        removed: number of pairs that each rule removed.
    """

    sides: Tuple[bytes, bytes]
    pairs: int
    removed: Dict[str, int]


def _make_small_texts(corpus: Corpus, settings: Settings, work: Path) -> Tuple[Dict[str, Any], str]:
    """Call :func:`_make_text` for the dev and the test set in this process; return the counts and the output."""
    said = io.StringIO()
    with redirect_stdout(said):
        counts = {split: _make_text(map, corpus, settings, work, split) for split in SPLITS if split != "train"}
    return counts, said.getvalue()


def _make_text(run: Map, corpus: Corpus, settings: Settings, work: Path, split: str) -> Dict[str, Any]:
    """Write the tokens of both sides to ``text/``, and copy the dev or test set to ``raw/``.

    Returns:
        the numbers of pairs that were read, kept, and removed by each rule.

    Raises:
        InputError: if a number is not as expected, or no pair is left.
    """
    files = corpus.files[split]
    removed: "Counter[str]" = Counter(dict.fromkeys(_RULES, 0))
    seen: Optional[Set[int]] = set() if settings.remove_duplicates and split == "train" else None
    read = kept = 0
    with ExitStack() as stack:
        outputs = [
            stack.enter_context(write_whole(work / "text" / f"{split}.{lang}", "wb")) for lang in settings.languages
        ]
        with _progress(f"{split}: normalise, tokenise", "pairs") as advance:
            for text in run(partial(_tokenise, split), read_parallel_blocks(*files, _BLOCK)):
                size = text.pairs + sum(text.removed.values())
                removed.update(text.removed)
                if seen is not None:
                    text = _unseen(text, seen)
                    removed["duplicate"] += text.removed["duplicate"]
                read += size
                kept += text.pairs
                for file, side in zip(outputs, text.sides):
                    file.write(side)
                advance(size)
    expected = corpus.expected.get(split)
    if expected is not None and read != expected:
        raise InputError(f"{split}: {files[0]} has {read} pairs, {expected} are expected; is the file complete?")
    if not kept:
        hint = (
            f"; {_ratio_hint(removed['ratio'], read)}" if removed["ratio"] and removed["ratio"] >= _MANY * read else ""
        )
        raise InputError(f"{split}: no pair is left of the {read} in {files[0]}{hint}")
    if split == "train" and corpus.kept is not None and not corpus.kept.allows(kept):
        rules = ", ".join(f"{rule} {n:,}" for rule, n in removed.items() if n)
        raise InputError(
            f"train: {kept:,} pairs are left after cleaning ({rules}), {corpus.kept} are expected; "
            "are the raw text and the settings those of the task?"
        )
    if split != "train":
        for path, lang in zip(files, settings.languages):
            _copy_raw(path, work / "raw" / f"{split}.{lang}")
    return {"read": read, "kept": kept, "removed": dict(removed)}


def _initialise_text(settings: Settings, moses: Optional[Path]) -> None:
    for split in SPLITS:
        tokeniser = "none" if split in settings.tokenised else settings.tokeniser
        _worker[split] = [make_preprocessor(settings, lang, tokeniser, moses) for lang in settings.languages]
    _worker["settings"] = settings


def _tokenise(split: str, pair: Tuple[LineBlock, LineBlock]) -> _Text:
    sides = tuple(block.decode() for block in pair)
    if split in _worker["settings"].tokenised:
        sides = tuple([repair_tokens(line) for line in side] for side in sides)
    sides = tuple(preprocess.process_lines(side) for preprocess, side in zip(_worker[split], sides))
    removed: "Counter[str]" = Counter()
    if split == "train":
        rules = [_why_removed(source, target, _worker["settings"]) for source, target in zip(*sides)]
        removed.update(filter(None, rules))
        sides = tuple([line for line, rule in zip(side, rules) if rule is None] for side in sides)
    return _Text((_encoded(sides[0]), _encoded(sides[1])), len(sides[0]), removed)


def _encoded(lines: Sequence[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode("utf-8")


def _why_removed(source: str, target: str, settings: Settings) -> Optional[str]:
    """Return the cleaning rule that a training pair breaks, as in Moses' clean-corpus-n, or None."""
    left, right = len(source.split()), len(target.split())
    if not left or not right:
        return "empty"
    if max(left, right) > settings.max_tokens or _has_long_word(source) or _has_long_word(target):
        return "long"
    if max(left, right) > settings.max_ratio * min(left, right):
        return "ratio"
    return None


def _has_long_word(line: str) -> bool:
    return len(line) > _LONGEST_WORD and max(map(len, line.split())) > _LONGEST_WORD


def _unseen(text: _Text, seen: Set[int]) -> _Text:
    """Return the pairs that are not in ``seen``, and add them to it, each as a checksum of 8 bytes."""
    kept: Tuple[List[bytes], List[bytes]] = ([], [])
    for pair in zip(*(side.splitlines(keepends=True) for side in text.sides)):
        key = int.from_bytes(blake2b(b"".join(pair), digest_size=8).digest(), "big")
        if key not in seen:
            seen.add(key)
            for lines, line in zip(kept, pair):
                lines.append(line)
    return _Text((b"".join(kept[0]), b"".join(kept[1])), len(kept[0]), {"duplicate": text.pairs - len(kept[0])})


def _copy_raw(source: Path, target: Path) -> None:
    """Copy a file, decompressed if its name ends in ``.gz``."""
    target.parent.mkdir(parents=True, exist_ok=True)
    opener: Callable[..., Any] = gzip.open if str(source).endswith(".gz") else open
    with opener(source, "rb") as reader, open(target, "wb") as writer:
        shutil.copyfileobj(reader, writer)


def _truecase(workers: int, settings: Settings, work: Path) -> None:
    """Learn ``truecase-model.LANG`` from the training tokens, and truecase the tokens under ``text/``."""
    for lang in (lang for lang in settings.languages if settings.has_case(lang)):
        model = work / f"{TRUECASE_MODEL}.{lang}"
        counts: Any = Counter()
        with worker_pool(workers) as run:
            text = work / "text" / f"train.{lang}"
            with _progress(f"train.{lang}: learn truecasing", "lines") as advance:
                for lines, found in run(_count_casings, blocks(read_lines(text), 20 * _BLOCK)):
                    counts.update(found)
                    advance(lines)
        truecase.write(model, counts)
        with worker_pool(workers, _initialise_truecase, model) as run:
            for split in (split for split in SPLITS if split not in settings.tokenised):
                text = work / "text" / f"{split}.{lang}"
                with write_whole(text) as file, _progress(f"{split}.{lang}: truecase", "lines") as advance:
                    for lines in run(_recase, blocks(read_lines(text), _BLOCK)):
                        file.write("".join(line + "\n" for line in lines))
                        advance(len(lines))


def _count_casings(lines: List[str]) -> Tuple[int, Any]:
    return len(lines), truecase.count_casings(lines)


def _initialise_truecase(model: Path) -> None:
    _worker["truecase"] = truecase.Truecaser.load(model)


def _recase(lines: List[str]) -> List[str]:
    return [_worker["truecase"](line) for line in lines]


# --- pieces ------------------------------------------------------------------------------------------------------


def _count_words(run: Map, settings: Settings, work: Path) -> List["Counter[str]"]:
    """Return the frequency of each word of the training text, one counter per language."""
    return list(run(bpe.count_words_of, [work / "text" / f"train.{lang}" for lang in settings.languages]))


def _learn_bpe(words: Sequence["Counter[str]"], settings: Settings) -> Learned:
    """Learn BPE codes on both languages together."""
    print(f"learning {settings.merges:,} BPE merges from {sum(map(len, words)):,} words", flush=True)
    start = time.monotonic()
    learned = learn(words[0] + words[1], settings.merges)
    print(f"learn BPE: {len(learned.codes) - 1:,} merges in {time.monotonic() - start:.1f} s", flush=True)
    return learned


def _make_segmenters(
    settings: Settings, work: Path, learned: Learned, counts: Sequence["Counter[str]"]
) -> List[bpe.Segmenter]:
    """Write ``bpecodes`` and ``vocab.LANG``, and return a segmenter for each language.

    The segmenters hold the pieces of the frequent words, so that each of these is split only once for all processes.
    """
    with write_whole(work / "bpecodes") as file:
        file.writelines(line + "\n" for line in learned.codes)
    plain = bpe.load_segmenter(work / "bpecodes")
    segmenters = []
    for lang, counted in zip(settings.languages, counts):
        pieces = {word: learned.pieces.get(word) or plain.split_word(word) for word in counted}
        vocabulary = bpe.count_pieces(pieces.values(), counted.values())
        bpe.write_vocabulary(work / f"vocab.{lang}", vocabulary)
        if len(pieces) > bpe.MAX_CACHED:
            pieces = {word: pieces[word] for word, _ in counted.most_common(bpe.MAX_CACHED)}
        segmenters.append(plain.limit(vocabulary, settings.vocabulary_threshold, pieces))
    return segmenters


def _initialise_bpe(segmenters: Sequence[bpe.Segmenter], settings: Settings) -> None:
    _worker["bpe"], _worker["settings"] = segmenters, settings


class _Pieces(NamedTuple):
    """A block of pairs after BPE.

    Attributes:
        sides: the pieces of both sides, each line with its LF.
        pairs: number of pairs before any were dropped.
        dropped: numbers of the lines that were dropped because they have too many pieces, from 0 in the file.
        words, pieces: number of words and of pieces on each side, of the pairs that were kept.
    """

    sides: Tuple[bytes, bytes]
    pairs: int
    dropped: List[int]
    words: Tuple[int, int]
    pieces: Tuple[int, int]


def _apply_bpe(run: Map, settings: Settings, work: Path, split: str) -> Tuple[int, Dict[str, float]]:
    """Write the pieces of both sides to ``bpe/``, and drop training pairs with too many pieces, also from ``text/``.

    Returns:
        the number of pairs that were dropped, and the pieces per word of each language.

    Raises:
        InputError: if a dev or test sentence has too many pieces, or no pair is left.
    """
    words, pieces, dropped, pairs = [0, 0], [0, 0], [], 0
    texts = [work / "text" / f"{split}.{lang}" for lang in settings.languages]
    with ExitStack() as stack:
        outputs = [
            stack.enter_context(write_whole(work / "bpe" / f"{split}.{lang}", "wb")) for lang in settings.languages
        ]
        with _progress(f"{split}: BPE", "pairs") as advance:
            for block in run(partial(_segment, split), read_parallel_blocks(texts[0], texts[1], _BLOCK)):
                for side, file in enumerate(outputs):
                    file.write(block.sides[side])
                    words[side] += block.words[side]
                    pieces[side] += block.pieces[side]
                dropped += block.dropped
                pairs += block.pairs
                advance(block.pairs)
    if len(dropped) == pairs:
        raise InputError(f"{split}: every pair has more than {settings.max_pieces} pieces; raise --max-pieces")
    if dropped:
        for text in texts:
            _drop_lines(text, dropped)
    return len(dropped), {
        lang: round(pieces[side] / max(words[side], 1), 4) for side, lang in enumerate(settings.languages)
    }


def _segment(split: str, pair: Tuple[LineBlock, LineBlock]) -> _Pieces:
    start, texts = pair[0].start, [block.decode() for block in pair]
    sides = [list(map(segmenter.process_line, text)) for segmenter, text in zip(_worker["bpe"], texts)]
    longest = _worker["settings"].max_pieces if split == "train" else MAX_POSITIONS - 1
    dropped = [i for i, lines in enumerate(zip(*sides)) if max(map(_count, lines)) > longest]
    if dropped and split != "train":
        raise InputError(
            f"{split}, line {start + dropped[0] + 1}: more pieces than the {longest} that the model has room for; "
            "shorten or split the sentence"
        )
    if dropped:
        without = set(dropped)
        texts, sides = (
            [[line for i, line in enumerate(side) if i not in without] for side in both] for both in (texts, sides)
        )
    return _Pieces(
        (_encoded(sides[0]), _encoded(sides[1])),
        len(sides[0]) + len(dropped),
        [start + i for i in dropped],
        (sum(map(_count, texts[0])), sum(map(_count, texts[1]))),
        (sum(map(_count, sides[0])), sum(map(_count, sides[1]))),
    )


def _count(line: str) -> int:
    """Return the number of tokens of a line."""
    return line.count(" ") + 1 if line else 0


def _drop_lines(text: Path, numbers: Sequence[int]) -> None:
    without = set(numbers)
    with write_whole(text, "wb") as file:
        file.writelines(line + b"\n" for i, line in enumerate(read_byte_lines(text)) if i not in without)


def _binarise(workers: int, settings: Settings, work: Path, splits: Dict[str, Dict[str, Any]]) -> None:
    """Binarise all splits, and add to ``splits`` the share of the pieces that the dictionaries lack.

    Raises:
        InputError: if the number of sentences of a split is not the number of pairs that were kept.
    """
    start = time.monotonic()
    counts = binarise(work, *settings.languages, {split: work / "bpe" / split for split in splits}, workers)
    for split, sides in counts.items():
        for lang, counted in sides.items():
            if counted.sentences != splits[split]["kept"]:
                raise InputError(f"{split}.{lang}: {counted.sentences} sentences of {splits[split]['kept']} binarised")
        splits[split]["unknown"] = {lang: round(c.unknown / max(c.pieces, 1), 6) for lang, c in sides.items()}
    pieces = sum(counted.pieces for sides in counts.values() for counted in sides.values())
    seconds = max(time.monotonic() - start, 1e-3)
    print(f"binarise: {pieces:,} pieces in {seconds:.1f} s, {pieces / seconds:,.0f} a second", flush=True)


@contextmanager
def _progress(what: str, unit: str) -> Iterator[Callable[[int], None]]:
    """Yield a callback that advances the progress bar by n; print a line with the speed at the end."""
    start, done = time.monotonic(), 0
    with tqdm(desc=what, unit=f" {unit}", unit_scale=True, disable=None, leave=False) as bar:

        def advance(more: int) -> None:
            nonlocal done
            done += more
            bar.update(more)

        yield advance
    seconds = max(time.monotonic() - start, 1e-3)
    print(f"{what}: {done:,} {unit} in {seconds:.1f} s, {done / seconds:,.0f} a second", flush=True)


# --- the folder --------------------------------------------------------------------------------------------------


def _say_what_it_takes(corpus: Corpus, settings: Settings, folder: Path, workers: int) -> None:
    size = 0.0
    for files in corpus.files.values():
        size += sum(path.stat().st_size * (3.5 if path.suffix == ".gz" else 1) for path in files)
    needed, free = _DISK * size / 1e9, shutil.disk_usage(folder).free / 1e9
    jieba = "zh" in settings.languages and settings.tokeniser != "none" and "train" not in settings.tokenised
    minutes = size / (_SPEED_OF_JIEBA if jieba else _SPEED) / workers / 60
    print(
        f"{size / 1e9:.2f} GB of raw text: about {minutes:.0f} minutes on {workers} cores, "
        f"{needed:.1f} GB of disk ({free:.1f} are free)"
    )
    if needed > free:
        raise InputError(
            f"{folder}: about {needed:.1f} GB are needed, {free:.1f} are free; make room or choose another folder"
        )


def _input_checksums(corpus: Corpus, languages: Tuple[str, str], workers: int) -> Dict[str, Dict[str, str]]:
    """Return the checksums of the raw files by split and file name, or ``LANG:NAME`` if both sides have one name.

    Raises:
        InputError: if there is no such file.
    """
    for split, files in corpus.files.items():
        for path in files:
            if not path.is_file():
                raise InputError(f"{path}: no such file (the {split} set)")
    subsets = list(corpus.subsets.values())
    checksums = _checksums([path for files in [*corpus.files.values(), subsets] for path in files], workers)
    inputs = {}
    for split, files in corpus.files.items():
        same = files[0].name == files[1].name
        names = [f"{lang}:{path.name}" if same else path.name for lang, path in zip(languages, files)]
        inputs[split] = {name: checksums[path] for name, path in zip(names, files)}
    return {**inputs, "subsets": {path.name: checksums[path] for path in subsets}} if subsets else inputs


def _checksums(paths: Sequence[Path], workers: int) -> Dict[Path, str]:
    with ThreadPoolExecutor(workers) as threads:  # hashlib releases the GIL
        return dict(zip(paths, threads.map(sha256, paths)))


def _check_subset(path: Path, test: Path) -> None:
    """Check a file of the numbers of test lines, from 0.

    Raises:
        InputError: if a line is not the number of a line of the test set or repeats one, or the file is empty.
    """
    size = count_lines(test)
    seen: Set[int] = set()
    for number, line in enumerate(read_lines(path), 1):
        if not re.fullmatch(r"[0-9]{1,9}", line) or int(line) >= size or int(line) in seen:
            raise InputError(f"{path}, line {number}: {line!r} is not a number of a test line, 0 to {size - 1}, once")
        seen.add(int(line))
    if not seen:
        raise InputError(f"{path}: no lines; remove it, or give numbers of test lines from 0")


def _finished(output: Path, settings: Settings, inputs: Dict[str, Dict[str, str]]) -> Optional[Dict[str, Any]]:
    """Return the record of a complete folder made from the same files and settings, or None if there is no folder.

    Raises:
        InputError: if the folder was made from something else, or one of its files is missing or has changed.
    """
    if not output.exists():
        return None
    if not DataFolder.is_one(output):
        raise InputError(f"{output} exists and was not made by `rela prepare`; choose another folder")
    folder = DataFolder(output)
    if folder.settings != settings or folder.record["inputs"] != inputs:
        raise InputError(f"{output} was prepared from other files or settings; remove it or choose another folder")
    folder.refuse_changed(folder.outputs)
    return folder.record


def _versions(moses: Optional[Path]) -> Dict[str, str]:
    versions = {"python": platform.python_version(), "unicode": unicodedata.unidata_version}
    for name in _TOOLS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if moses is not None:
        for script in sorted((moses / "scripts" / "tokenizer").glob("*.perl")):
            versions[script.name] = sha256(script)
    return versions
