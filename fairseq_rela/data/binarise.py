"""Binarise text on all cores; the files equal those of ``fairseq-preprocess`` byte for byte.

fairseq's own classes hold the dictionaries and write the indices; only the loop over the words is replaced.
"""

import shutil
import struct
from array import array
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

from ..errors import InputError
from ..files.commands import shown
from ..files.lines import LineBlock, read_line_blocks
from ..files.outputs import write_whole
from ..files.workers import Map, worker_pool
from ..register import load_plugin
from ..text.bpe import count_words_of

_MAGIC = b"MMIDIDX\x00\x00"
_BLOCK = 2000


def count_sentences(prefix: Path) -> int:
    """Return the number of sentences of a binarised file, read from the header of ``PREFIX.idx``.

    Raises:
        InputError: if the file cannot be read, or is not one of fairseq's memory-mapped indices.
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
    folder: Path,
    source_lang: str,
    target_lang: str,
    prefixes: Dict[str, Path],
    workers: int,
    dictionaries: Optional[Path] = None,
    only_source: bool = False,
) -> Dict[str, Dict[str, Binarised]]:
    """Write fairseq's binarised data and ``dict.LANG.txt`` to ``folder``.

    Args:
        folder: where to write.
        source_lang, target_lang: language codes.
        prefixes: for each split (``train``, ``valid``, ``test``), the prefix of its files ``prefix.LANG``, which
            hold pieces separated by single spaces.
        workers: number of processes.
        dictionaries: a folder with the files ``dict.LANG.txt`` to use; if None, they are made from the training files.
        only_source: whether there is no target side.

    Returns:
        the counts, by split and language.

    Raises:
        InputError: if a file cannot be read.
    """
    load_plugin()  # imports fairseq without its messages
    from fairseq.data import Dictionary

    languages = (source_lang,) if only_source else (source_lang, target_lang)
    command = _fairseq_command(folder, languages, source_lang, target_lang, prefixes, dictionaries)
    print(f"as by $ {command}", flush=True)
    files = [folder / f"dict.{lang}.txt" for lang in languages]
    if dictionaries is None:
        encoders = [Dictionary() for _ in languages]
        with worker_pool(min(workers, len(languages))) as run:
            texts = [Path(f"{prefixes['train']}.{lang}") for lang in languages]
            for dictionary, path, pieces in zip(encoders, files, run(count_words_of, texts)):
                for piece, count in sorted(pieces.items()):
                    dictionary.add_symbol(piece, n=count)
                dictionary.finalize(threshold=0, nwords=-1, padding_factor=8)
                dictionary.save(str(path))
    else:
        for path in files:
            shutil.copyfile(dictionaries / path.name, path)
        encoders = [Dictionary.load(str(path)) for path in files]
    counts: Dict[str, Dict[str, Binarised]] = {}
    with worker_pool(workers, _set_encoders, encoders) as run:
        for split, prefix in prefixes.items():
            counts[split] = {}
            for side, lang in enumerate(languages):
                output = folder / f"{split}.{source_lang}-{target_lang}.{lang}"
                counts[split][lang] = _binarise_file(run, side, Path(f"{prefix}.{lang}"), output, encoders[side])
    return counts


def _fairseq_command(
    folder: Path,
    languages: Any,
    source_lang: str,
    target_lang: str,
    prefixes: Dict[str, Path],
    dictionaries: Optional[Path],
) -> str:
    arguments: List[object] = ["--source-lang", source_lang, "--target-lang", target_lang, "--destdir", folder]
    for split, prefix in prefixes.items():
        arguments += [f"--{split}pref", prefix]
    # BPE has applied the vocabulary threshold already, so the dictionary takes all pieces
    arguments += ["--thresholdsrc", 0, "--thresholdtgt", 0]
    if dictionaries is not None:
        for option, lang in zip(("--srcdict", "--tgtdict"), languages):
            arguments += [option, dictionaries / f"dict.{lang}.txt"]
    return shown("preprocess", arguments + (["--only-source"] if len(languages) == 1 else []))


_encoder: Dict[str, Any] = {}


class _Encoded(NamedTuple):
    """Ids of a block of lines in the format of fairseq's ``.bin``, lengths of the lines, number of unknown pieces."""

    ids: bytes
    lengths: bytes
    unknown: int


def _set_encoders(dictionaries: List[Any]) -> None:
    _encoder["dictionaries"] = dictionaries


def _encode(side: int, block: LineBlock) -> _Encoded:
    import numpy
    from fairseq.data.indexed_dataset import best_fitting_int_dtype

    dictionary = _encoder["dictionaries"][side]
    known, unknown_id, end = dictionary.indices, dictionary.unk(), dictionary.eos()
    ids: List[int] = []
    lengths = array("i")
    for line in block.decode():
        start = len(ids)
        ids += [known.get(piece, unknown_id) for piece in line.split()]
        ids.append(end)
        lengths.append(len(ids) - start)
    encoded = numpy.array(ids, dtype=best_fitting_int_dtype(len(dictionary)))
    return _Encoded(encoded.tobytes(), lengths.tobytes(), ids.count(unknown_id))


def _binarise_file(run: Map, side: int, text: Path, prefix: Path, dictionary: Any) -> Binarised:
    from fairseq.data.indexed_dataset import MMapIndexedDataset, best_fitting_int_dtype

    lengths, unknown = array("i"), 0
    with write_whole(f"{prefix}.bin", "wb") as output:
        for block in run(partial(_encode, side), read_line_blocks(text, _BLOCK)):
            output.write(block.ids)
            lengths.frombytes(block.lengths)
            unknown += block.unknown
    with MMapIndexedDataset.Index.writer(f"{prefix}.idx", best_fitting_int_dtype(len(dictionary))) as index:
        index.write(lengths)
    return Binarised(len(lengths), sum(lengths) - len(lengths), unknown)
