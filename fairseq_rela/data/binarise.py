"""Binarise pieces with fairseq: a corpus by fairseq-preprocess, a text for a trained model in this process."""

import shutil
import struct
from pathlib import Path
from typing import Dict, List, NamedTuple, Tuple

import numpy

from ..errors import InputError
from ..files.commands import run_fairseq
from ..files.lines import count_lines
from ..register import load_plugin
from .folder import DataFolder

_MAGIC = b"MMIDIDX\x00\x00"


def count_sentences(prefix: Path) -> int:
    """Return the number of sentences of a binarised file, read from the header of ``PREFIX.idx``.

    Raises:
        InputError: the file cannot be read, or is not one of fairseq's memory-mapped indices.
    """
    path = Path(f"{prefix}.idx")
    try:
        header = path.read_bytes()[:26]
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(header) < 26 or not header.startswith(_MAGIC):
        raise InputError(f"{path}: not an index of fairseq's binarised data; binarise again")
    _version, _dtype, sentences = struct.unpack("<QBQ", header[9:])
    return sentences


class Binarised(NamedTuple):
    """Number of sentences, of pieces (without end-of-sentence symbols), and of pieces that the dictionary lacks."""

    sentences: int
    pieces: int
    unknown: int


def binarise(
    folder: Path, languages: Tuple[str, str], prefixes: Dict[str, Path], workers: int, log: Path
) -> Dict[str, Dict[str, Binarised]]:
    """Write fairseq's binarised data and ``dict.LANG.txt`` to ``folder`` by ``fairseq-preprocess``.

    Args:
        folder: where to write.
        languages: source and target language.
        prefixes: for each split (``train``, ``valid``, ``test``), the prefix of its files ``prefix.LANG``, which
            hold pieces separated by single spaces.
        workers: number of processes.
        log: the file for the output of the command.

    Returns:
        the counts, by split and language.

    Raises:
        InputError: the command failed.
    """
    source, target = languages
    arguments: List[object] = ["--source-lang", source, "--target-lang", target, "--destdir", folder]
    for split, prefix in prefixes.items():
        arguments += [f"--{split}pref", prefix]
    # BPE has applied the vocabulary threshold already, so the dictionary takes all pieces
    run_fairseq("preprocess", [*arguments, "--thresholdsrc", 0, "--thresholdtgt", 0, "--workers", workers], log)
    return {
        split: {
            lang: _count(folder / f"{split}.{source}-{target}.{lang}", folder / f"dict.{lang}.txt")
            for lang in languages
        }
        for split in prefixes
    }


def _count(prefix: Path, dictionary: Path) -> Binarised:
    """Count the sentences and pieces of a binarised file from the file itself.

    The type of its ids depends on the size of the dictionary.
    """
    load_plugin()  # imports fairseq without its messages
    from fairseq.data import Dictionary
    from fairseq.data.indexed_dataset import best_fitting_int_dtype

    special = Dictionary()
    ids = numpy.memmap(f"{prefix}.bin", best_fitting_int_dtype(len(special) + count_lines(dictionary)), "r")
    sentences = count_sentences(prefix)
    return Binarised(sentences, len(ids) - sentences, int(numpy.count_nonzero(ids == special.unk())))


def binarise_texts(folder: Path, data: DataFolder, texts: Dict[str, Path], subset: str) -> None:
    """Write a subset with the dictionaries of a data folder to another folder, in this process.

    Args:
        folder: where to write the binarised texts and the dictionaries of both languages.
        data: the data folder.
        texts: the pieces of each language that the subset has.
        subset: name of the subset.
    """
    load_plugin()
    from fairseq.binarizer import FileBinarizer, VocabularyDatasetBinarizer
    from fairseq.data import Dictionary

    for lang in data.languages:
        shutil.copyfile(data.path / f"dict.{lang}.txt", folder / f"dict.{lang}.txt")
    for lang, text in texts.items():
        dictionary = Dictionary.load(str(data.path / f"dict.{lang}.txt"))
        prefix = str(folder / f"{subset}.{data.pair}.{lang}")
        binarizer = VocabularyDatasetBinarizer(dictionary)
        FileBinarizer.multiprocess_dataset(str(text), "mmap", binarizer, prefix, vocab_size=len(dictionary))
