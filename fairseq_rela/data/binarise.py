"""fairseq's binarised data: made by ``fairseq-preprocess``, counted by ourselves."""

import struct
from pathlib import Path
from typing import Dict, List, Optional

from ..commands import run_fairseq
from ..errors import InputError
from .lines import count_lines

_MAGIC = b"MMIDIDX\x00\x00"


def count_sentences(prefix: Path) -> int:
    """The number of sentences of a binarised file, from the header of its ``.idx``.

    Raises:
        InputError: no such file, or not one of fairseq's memory-mapped indices.
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


def binarise(
    folder: Path,
    source_lang: str,
    target_lang: str,
    prefixes: Dict[str, Path],
    workers: int,
    dictionaries: Optional[Path] = None,
    only_source: bool = False,
) -> Dict[str, int]:
    """Binarise files ``prefix.LANG`` into ``folder`` and check every count.

    Args:
        prefixes: split (``train``, ``valid``, ``test``) to the prefix of its two files.
        dictionaries: a folder with ``dict.LANG.txt`` to use; made from the training files where left out.
        only_source: there is no target side.

    Returns:
        split to number of sentences.

    Raises:
        InputError: fairseq-preprocess failed, or wrote another number of sentences than there are lines.
    """
    arguments: List[object] = ["--source-lang", source_lang, "--target-lang", target_lang, "--destdir", folder]
    for split, prefix in prefixes.items():
        arguments += [f"--{split}pref", prefix]
    # the vocabulary threshold is applied by BPE; every piece that is left goes into the dictionary
    arguments += ["--thresholdsrc", 0, "--thresholdtgt", 0, "--workers", workers]
    if dictionaries is not None:
        arguments += ["--srcdict", dictionaries / f"dict.{source_lang}.txt"]
        if not only_source:
            arguments += ["--tgtdict", dictionaries / f"dict.{target_lang}.txt"]
    if only_source:
        arguments.append("--only-source")
    run_fairseq("preprocess", arguments, log=folder / "binarise.log")

    counts = {}
    for split, prefix in prefixes.items():
        for lang in (source_lang,) if only_source else (source_lang, target_lang):
            written = count_sentences(folder / f"{split}.{source_lang}-{target_lang}.{lang}")
            lines = count_lines(f"{prefix}.{lang}")
            if written != lines:
                raise InputError(f"{prefix}.{lang} has {lines} lines, but {written} sentences were binarised")
            counts[split] = lines
    return counts
