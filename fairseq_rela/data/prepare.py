"""Raw parallel text to binarised data: normalise, tokenise, clean, BPE, binarise, on all cores."""

import fcntl
import multiprocessing
import os
import platform
import shutil
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Tuple

from tqdm import tqdm

from ..errors import InputError
from . import bpe
from .binarise import binarise
from .lines import PathLike, read_json, read_lines, read_parallel, sha256, write_json, write_whole
from .text import TOKENISERS, Preprocessor

Pair = Tuple[str, str]
RECORD = "prepare.json"
MAX_POSITIONS = 1024  # of the models; fairseq refuses longer test sentences
_CHUNK = 1000
_TOOLS = ("sacremoses", "subword-nmt", "ve-fairseq", "fairseq", "fairseq-fixed", "fairseq-rela")


@dataclass
class Settings:
    """What decides the data; two runs with equal settings and inputs give equal bytes.

    Attributes:
        source_lang, target_lang: ISO 639-1 codes.
        tokeniser: ``moses``, or ``none`` for text that is tokenised already.
        max_tokens: training pairs with more tokens than this on a side are dropped.
        max_ratio: and those of which one side has more than this many times the tokens of the other.
        merges: BPE merge operations, learnt on both languages together.
        vocabulary_threshold: least frequency of a piece in its language that BPE may produce.
    """

    source_lang: str
    target_lang: str
    tokeniser: str = "moses"
    max_tokens: int = 250
    max_ratio: float = 9.0
    merges: int = 32000
    vocabulary_threshold: int = 50

    def __post_init__(self) -> None:
        for name in ("source_lang", "target_lang"):
            lang = getattr(self, name)
            if not str(lang).replace("_", "").isalnum():
                raise InputError(f"--{name.replace('_', '-')} {lang!r}: give a language code such as en")
        if self.source_lang == self.target_lang:
            raise InputError(f"source and target language are both {self.source_lang}; give two different codes")
        if self.tokeniser not in TOKENISERS:
            raise InputError(f"--tokeniser {self.tokeniser}: choose one of {', '.join(TOKENISERS)}")
        for name in ("max_tokens", "max_ratio", "merges", "vocabulary_threshold"):
            if getattr(self, name) < 1:
                raise InputError(f"--{name.replace('_', '-')} {getattr(self, name)}: must be at least 1")

    @property
    def languages(self) -> Tuple[str, str]:
        return self.source_lang, self.target_lang


@dataclass
class Corpus:
    """The raw files: split (``train``, ``valid``, ``test``) to its source and target file, plain or ``.gz``.

    Attributes:
        expected: split to the number of pairs it must have, where known.
    """

    files: Dict[str, Tuple[Path, Path]]
    expected: Dict[str, int] = field(default_factory=dict)


def prepare(corpus: Corpus, settings: Settings, output: Path, workers: Optional[int] = None) -> Dict[str, Any]:
    """Make the data folder ``output``, or reuse it where it was made from the same input.

    It holds fairseq's binarised data and dictionaries; ``bpecodes`` and ``vocab.LANG``; under ``raw/`` the
    untouched dev and test sets; under ``text/`` the tokens, under ``bpe/`` the pieces; and ``prepare.json``,
    the record of versions, settings, counts and checksums.

    Returns:
        the record.

    Raises:
        InputError: bad files or settings, unequal counts, or a folder made from something else.
    """
    workers = workers or os.cpu_count() or 1
    for split in ("train", "valid", "test"):
        if split not in corpus.files:
            raise InputError(f"no files for the {split} set; give --{split}")
    inputs = _input_checksums(corpus)
    done = _finished(output, settings, inputs)
    if done is not None:
        print(f"{output}: already prepared from the same files and settings")
        return done

    with _work_folder(output) as work:
        record: Dict[str, Any] = {
            "settings": asdict(settings),
            "inputs": inputs,
            "versions": _versions(),
            "splits": {},
        }
        with multiprocessing.Pool(workers, _init_tokenise, (settings,)) as pool:
            for split, files in corpus.files.items():
                record["splits"][split] = _make_text(pool, split, files, settings, corpus.expected.get(split), work)
        _learn_bpe(work, settings)
        with multiprocessing.Pool(workers, _init_bpe, (work, settings)) as pool:
            for split in corpus.files:
                record["splits"][split]["pieces_per_word"] = _apply_bpe(pool, split, settings, work)
        binarise(work, *settings.languages, {split: work / "bpe" / split for split in corpus.files}, workers)
        (work / "preprocess.log").unlink()  # fairseq's own log names the work folder
        record["outputs"] = {
            str(path.relative_to(work)): sha256(path)
            for path in sorted(work.rglob("*"))
            if path.is_file() and path.suffix != ".log"
        }
        write_json(work / RECORD, record)
    return record


def describe(record: Dict[str, Any]) -> str:
    """The counts of a record, a line a split."""
    lines = []
    for split, counts in record["splits"].items():
        removed = ", ".join(f"{rule} {n:,}" for rule, n in counts["removed"].items() if n)
        pieces = ", ".join(f"{lang} {value:.2f}" for lang, value in counts["pieces_per_word"].items())
        lines.append(
            f"{split}: {counts['kept']:,} of {counts['read']:,} pairs"
            + (f" (removed: {removed})" if removed else "")
            + f"; pieces a word: {pieces}"
        )
    return "\n".join(lines)


def load_record(data: PathLike) -> Dict[str, Any]:
    """The record of a data folder.

    Raises:
        InputError: the folder was not made by ``rela prepare``.
    """
    path = Path(data) / RECORD
    if not path.is_file():
        raise InputError(f"{data}: no {RECORD}, so this is not a data folder of `rela prepare`")
    record = read_json(path)
    if not isinstance(record, dict) or not {"settings", "inputs", "outputs", "splits"} <= record.keys():
        raise InputError(f"{path}: not a record of `rela prepare`; prepare the data again")
    return record


def refuse_changed(data: Path, names: Iterable[str]) -> None:
    """
    Raises:
        InputError: a file of the data folder is missing, or not what it was when it was prepared.
    """
    outputs = load_record(data)["outputs"]
    for name in names:
        if not (data / name).is_file() or sha256(data / name) != outputs.get(name):
            raise InputError(f"{data / name} is missing or has changed since it was prepared; prepare the data again")


def settings_of(record: Dict[str, Any]) -> Settings:
    return Settings(**record["settings"])


def segment_text(lines: Iterable[str], data: Path) -> Iterator[str]:
    """Raw source lines to the pieces that the model of a data folder was trained on."""
    settings = settings_of(load_record(data))
    preprocess = Preprocessor(settings.source_lang, settings.tokeniser)
    segmenter = load_segmenter(data, settings.source_lang, settings)
    for line in lines:
        yield segmenter.process_line(preprocess(line))


# --- the steps ---------------------------------------------------------------------------------------------------


def _make_text(
    pool: Any, split: str, files: Tuple[Path, Path], settings: Settings, expected: Optional[int], work: Path
) -> Dict[str, Any]:
    """Tokens of both sides under ``text/``; raw copies of dev and test; how many pairs each rule removed."""
    removed: "Counter[str]" = Counter(dict.fromkeys(("empty", "long", "ratio"), 0))
    read = kept = 0
    paths = [work / "text" / f"{split}.{lang}" for lang in settings.languages]
    with write_whole(paths[0]) as left, write_whole(paths[1]) as right:
        pairs = _progress(read_parallel(*files), f"{split}: normalise, tokenise", "pairs")
        for source, target in _map(pool, _tokenise_pair, pairs):
            read += 1
            rule = _why_removed(source, target, settings) if split == "train" else None
            if rule:
                removed[rule] += 1
                continue
            kept += 1
            left.write(source + "\n")
            right.write(target + "\n")
    if expected is not None and read != expected:
        raise InputError(f"{split}: {files[0]} has {read} pairs, {expected} are expected; is the file complete?")
    if not kept:
        raise InputError(f"{split}: no pair is left of the {read} in {files[0]}")
    if split != "train":
        for path, lang in zip(files, settings.languages):
            _copy_raw(path, work / "raw" / f"{split}.{lang}")
    return {"read": read, "kept": kept, "removed": dict(removed)}


def _why_removed(source: str, target: str, settings: Settings) -> Optional[str]:
    """The rule that a training pair breaks, as Moses' clean-corpus-n, or None."""
    left, right = len(source.split()), len(target.split())
    if not left or not right:
        return "empty"
    if max(left, right) > settings.max_tokens:
        return "long"
    if max(left, right) > settings.max_ratio * min(left, right):
        return "ratio"
    return None


def _learn_bpe(work: Path, settings: Settings) -> None:
    """``bpecodes`` from both languages together, ``vocab.LANG`` of each."""
    words = {
        lang: bpe.count_words(_progress(read_lines(work / "text" / f"train.{lang}"), f"count words: {lang}", "lines"))
        for lang in settings.languages
    }
    print(f"learning {settings.merges:,} BPE merges from {sum(map(len, words.values())):,} words", flush=True)
    codes = bpe.learn(words[settings.source_lang] + words[settings.target_lang], settings.merges)
    with write_whole(work / "bpecodes") as file:
        file.writelines(line + "\n" for line in codes)
    segmenter = bpe.load_segmenter(work / "bpecodes")
    for lang in settings.languages:
        bpe.write_vocabulary(work / f"vocab.{lang}", bpe.count_pieces(segmenter, words[lang]))


def _apply_bpe(pool: Any, split: str, settings: Settings, work: Path) -> Dict[str, float]:
    """Pieces of both sides under ``bpe/``; how many there are to a word."""
    ratios = {}
    for lang in settings.languages:
        words = pieces = 0
        text = work / "text" / f"{split}.{lang}"
        with write_whole(work / "bpe" / f"{split}.{lang}") as file:
            lines = _progress(read_lines(text), f"{split}.{lang}: BPE", "lines")
            for number, (line, segmented) in enumerate(_map(pool, _segment_line, ((lang, line) for line in lines)), 1):
                words += len(line.split())
                length = len(segmented.split())
                pieces += length
                if bpe.undo(segmented) != line:
                    raise InputError(f"{text}, line {number}: BPE does not give the line back when undone")
                if length >= MAX_POSITIONS and split != "train":
                    raise InputError(
                        f"{split}.{lang}, line {number}: {length} pieces, more than the model's {MAX_POSITIONS}; "
                        "shorten or split the sentence"
                    )
                file.write(segmented + "\n")
        ratios[lang] = round(pieces / max(words, 1), 4)
    return ratios


def _copy_raw(source: Path, target: Path) -> None:
    """The bytes of the file, unpacked."""
    import gzip

    target.parent.mkdir(parents=True, exist_ok=True)
    opener: Callable[..., Any] = gzip.open if str(source).endswith(".gz") else open
    with opener(source, "rb") as reader, open(target, "wb") as writer:
        shutil.copyfileobj(reader, writer)


# --- work on all cores -------------------------------------------------------------------------------------------

_worker: Dict[str, Any] = {}


def _init_tokenise(settings: Settings) -> None:
    _worker["preprocess"] = [Preprocessor(lang, settings.tokeniser) for lang in settings.languages]


def _tokenise_pair(pair: Pair) -> Pair:
    source, target = _worker["preprocess"]
    return source(pair[0]), target(pair[1])


def _init_bpe(work: Path, settings: Settings) -> None:
    _worker["bpe"] = {lang: load_segmenter(work, lang, settings) for lang in settings.languages}


def _segment_line(item: Tuple[str, str]) -> Pair:
    lang, line = item
    return line, _worker["bpe"][lang].process_line(line)


def load_segmenter(data: Path, lang: str, settings: Settings) -> Any:
    """What splits words of one language of a data folder into the pieces its model knows."""
    return bpe.load_segmenter(data / "bpecodes", data / f"vocab.{lang}", settings.vocabulary_threshold)


def _map(pool: Any, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """``map`` over the pool, in order, a bounded number of items ahead of the consumer."""
    items = iter(items)
    while True:
        block = list(islice(items, 32 * _CHUNK))
        if not block:
            return
        yield from pool.imap(function, block, chunksize=_CHUNK)


def _progress(items: Iterable[Any], what: str, unit: str) -> Iterable[Any]:
    return tqdm(items, desc=what, unit=f" {unit}", unit_scale=True, disable=None)


# --- the folder --------------------------------------------------------------------------------------------------


def _input_checksums(corpus: Corpus) -> Dict[str, Dict[str, str]]:
    checksums: Dict[str, Dict[str, str]] = {}
    for split, files in corpus.files.items():
        for path in files:
            if not path.is_file():
                raise InputError(f"{path}: no such file (the {split} set)")
        checksums[split] = {path.name: sha256(path) for path in files}
    return checksums


def _finished(output: Path, settings: Settings, inputs: Dict[str, Dict[str, str]]) -> Optional[Dict[str, Any]]:
    """The record of a complete folder made from the same input, None where there is no folder yet."""
    if not output.exists():
        return None
    if not (output / RECORD).is_file():
        raise InputError(f"{output} exists and was not made by `rela prepare`; choose another --output")
    record = load_record(output)
    if record.get("settings") != asdict(settings) or record.get("inputs") != inputs:
        raise InputError(f"{output} was prepared from other files or settings; remove it or choose another --output")
    refuse_changed(output, record["outputs"])
    return record


@contextmanager
def _work_folder(output: Path) -> Iterator[Path]:
    """A folder beside ``output`` that takes its name when complete; what an interrupted run left is removed."""
    if not output.name:
        raise InputError(f"--output {output}: give the name of a folder to make")
    work = output.with_name(f".{output.name}.partial")
    with _only_process(output):
        try:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
        except OSError as error:
            raise InputError(f"{work}: cannot be made ({error.strerror or error})") from error
        try:
            yield work
            work.rename(output)
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _only_process(output: Path) -> Iterator[None]:
    """
    Raises:
        InputError: another process is making the same folder.
    """
    lock = output.with_name(f".{output.name}.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = open(lock, "w")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise InputError(f"{lock}: cannot be made ({error.strerror or error})") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(f"{output} is being prepared by another process; wait for it") from error
        try:
            yield
        finally:
            lock.unlink()


def _versions() -> Dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _TOOLS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
