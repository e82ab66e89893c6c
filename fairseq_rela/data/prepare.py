"""Make a data folder from raw parallel text: normalise, tokenise, clean, truecase, split by BPE, binarise."""

import os
import platform
import tempfile
import time
import unicodedata
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

from ..corpora.spec import SPLITS
from ..errors import InputError
from ..files.commands import refuse_misread
from ..files.machine import installed
from ..files.outputs import work_folder
from ..files.records import sha256, write_json
from .binarise import binarise
from .casing import truecase_tokens
from .clean import ratio_hint
from .corpus import Corpus, checksums
from .draft import Draft, print_speed
from .folder import RECORD, DataFolder
from .pieces import learn_pieces, make_pieces
from .settings import Settings
from .tokens import make_tokens

_TOOLS = ("sacremoses", "subword-nmt", "jieba", "regex", "ve-fairseq", "fairseq", "fairseq-fixed", "fairseq-rela")


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
        InputError: files or settings are wrong, counts are unequal or not as expected, or ``output`` was made from
            something else.
    """
    workers = workers or os.cpu_count() or 1
    refuse_misread(output.resolve())
    inputs = corpus.checksums(settings.languages, workers)
    done = _finished(output, settings, inputs)
    if done is not None:
        print(f"{output}: already prepared from the same files and settings")
        return done
    corpus.refuse_not_text()
    with work_folder(output) as work:
        corpus.print_needs(settings, output.parent, workers)
        draft = Draft(work, settings, workers)
        splits = make_tokens(corpus, draft, moses)
        if settings.truecase:
            truecase_tokens(draft)
        make_pieces(draft, learn_pieces(draft), splits)
        _binarise(draft, output.with_name(f"{output.name}.log"), splits)
        corpus.copy_raw(work / "raw", settings.languages)
        files = [path for path in sorted(work.rglob("*")) if path.is_file() and path.suffix != ".log"]
        record = {
            "settings": settings.record(),
            "inputs": inputs,
            "versions": _versions(moses),
            "splits": splits,
            "outputs": {str(path.relative_to(work)): digest for path, digest in checksums(files, workers).items()},
        }
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
    hint = ratio_hint(counts["removed"].get("ratio", 0), counts["read"])
    lines += [f"warning: {hint}"] if hint else []
    train, test = record["splits"]["train"]["pieces_per_word"], record["splits"]["test"]["pieces_per_word"]
    for lang in train:
        if test[lang] > 1.5 * train[lang]:
            lines.append(
                f"warning: {test[lang]:.2f} pieces a word of {lang} in the test set, {train[lang]:.2f} in the training "
                "text: are they of the same language, tokenised in the same way?"
            )
    return "\n".join(lines)


def _binarise(draft: Draft, log: Path, splits: Dict[str, Dict[str, Any]]) -> None:
    """Binarise all splits, and add to ``splits`` the share of the pieces that the dictionaries lack.

    Raises:
        InputError: fairseq-preprocess failed, or the number of sentences of a split is not the number of pairs that
            were kept.
    """
    start = time.monotonic()
    with _path_without_comma(draft.path / "bpe") as pieces:
        prefixes = {split: pieces / split for split in SPLITS}
        counts = binarise(draft.path, draft.settings.languages, prefixes, draft.workers, log)
    for split, sides in counts.items():
        for lang, counted in sides.items():
            if counted.sentences != splits[split]["kept"]:
                raise InputError(
                    f"{split}.{lang}: fairseq-preprocess wrote {counted.sentences} of {splits[split]['kept']} "
                    f"sentences; look into {log}"
                )
        splits[split]["unknown"] = {lang: round(c.unknown / max(c.pieces, 1), 6) for lang, c in sides.items()}
    print_speed("binarise", sum(c.pieces for sides in counts.values() for c in sides.values()), "pieces", start)
    # logs name folders and times, and equal inputs must give equal folders
    for finished in (log, draft.path / "preprocess.log"):
        finished.unlink(missing_ok=True)


@contextmanager
def _path_without_comma(folder: Path) -> Iterator[Path]:
    """Yield a folder, or a link to it if its path has a comma: fairseq-preprocess splits the paths of texts there."""
    if "," not in str(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="rela-prepare-") as name:
        link = Path(name) / "bpe"
        link.symlink_to(folder.resolve())
        yield link


def _finished(output: Path, settings: Settings, inputs: Dict[str, Dict[str, str]]) -> Optional[Dict[str, Any]]:
    """Return the record of a complete folder made from the same files and settings, or None if there is no folder.

    Raises:
        InputError: the folder was made from something else, or one of its files is missing or has changed.
    """
    if not output.exists():
        return None
    if not DataFolder.is_prepared(output):
        raise InputError(f"{output} exists and was not made by `rela prepare`; choose another folder")
    folder = DataFolder(output)
    if folder.settings != settings or folder.record["inputs"] != inputs:
        raise InputError(f"{output} was prepared from other files or settings; remove it or choose another folder")
    folder.refuse_changed(folder.outputs)
    return folder.record


def _versions(moses: Optional[Path]) -> Dict[str, str]:
    """Return the versions of everything that changes tokens or pieces, and checksums of the scripts of Moses."""
    versions = {"python": platform.python_version(), "unicode": unicodedata.unidata_version, **installed(_TOOLS)}
    if moses is not None:
        for script in sorted((moses / "scripts" / "tokenizer").glob("*.perl")):
            versions[script.name] = sha256(script)
    return versions
