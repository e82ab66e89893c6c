"""The file with the scores of a corpus, to which an interrupted run appends."""

import os
from array import array
from pathlib import Path
from typing import IO, Any, Dict, Sequence, Tuple

import numpy

from ..errors import InputError
from ..files.lines import read_lines
from ..files.records import read_json, write_json
from .pair_scorer import Score

FORMAT = 1
COLUMNS = ("line", "null_rate", "log_probability", "source_pieces", "target_pieces", "reason")
_HEADER = ("\t".join(COLUMNS) + "\n").encode("utf-8")


def row(number: int, score: Score) -> bytes:
    """Return the line of one pair as UTF-8; ``number`` is its line in the corpus, from 0."""
    numbers = f"{score.null_rate:.6f}\t{score.log_probability:.6f}"
    return f"{number}\t{numbers}\t{score.source_pieces}\t{score.target_pieces}\t{score.reason}\n".encode()


class ScoreFile:
    """A tab-separated file with a header and one line for each pair; the columns are :data:`COLUMNS`.

    Attributes:
        path: the complete file.
        partial: the file to which scores are appended until it is complete.
        record: file of the state: ``format``, ``attention``, ``pairs``, and the mappings ``inputs`` (checksums and
            settings) and ``batches`` (the settings
            that determine which pairs share a batch, which changes the last digits of the scores).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.partial = path.with_name(f"{path.name}.partial")
        self.record = path.with_name(f"{path.name}.rank.json")

    def is_complete(self, state: Dict[str, Any]) -> bool:
        """Return whether all pairs are scored; the batches may be others than those of ``state``.

        Raises:
            InputError: the file was made from other inputs.
        """
        if not self.path.exists():
            return False
        self._refuse_other(self.path, state, ("inputs",))
        return True

    def resume(self, state: Dict[str, Any]) -> int:
        """Cut the partial file after its last complete block, and return the number of pairs in it.

        Without such a file, a new one is started.

        Raises:
            InputError: the interrupted run had other inputs or batches, or another program made the file.
        """
        if not self.partial.exists():
            write_json(self.record, state)
            self.partial.write_bytes(_HEADER)
            return 0
        self._refuse_other(self.partial, state, ("inputs", "batches"))
        with open(self.partial, "rb+") as file:
            done, end = _complete_blocks(file, state["batches"]["block_size"])
            file.seek(end)
            file.truncate()
            if not end:
                file.write(_HEADER)
        return done

    def finish(self) -> None:
        """Give the partial file its final name."""
        os.replace(self.partial, self.path)

    def read(self, pairs: int) -> Tuple["numpy.ndarray", "numpy.ndarray"]:
        """Return the null rates and log-probabilities, (pairs,) float32 each, nan where a pair has no score.

        Raises:
            InputError: the file is damaged.
        """
        scores = array("f"), array("f")
        for number, line in enumerate(read_lines(self.path), -1):
            if number < 0:
                continue
            columns = line.split("\t")
            try:
                if int(columns[0]) != number or len(columns) != len(COLUMNS):
                    raise ValueError
                for values, column in zip(scores, columns[1:3]):
                    values.append(float(column))
            except ValueError as error:
                raise InputError(f"{self.path}, line {number + 2}: damaged; remove the file and rank again") from error
        if len(scores[0]) != pairs:
            raise InputError(f"{self.path}: {len(scores[0])} of {pairs} pairs; remove the file and rank again")
        return numpy.frombuffer(scores[0], numpy.float32), numpy.frombuffer(scores[1], numpy.float32)

    def _refuse_other(self, path: Path, state: Dict[str, Any], parts: Sequence[str]) -> None:
        """Check that a file was made with the same values as ``state`` has in ``parts``.

        Raises:
            InputError: it was not, or not by this version of ``rela rank``.
        """
        if not path.is_file() or not self.record.is_file():
            raise InputError(f"{path} exists and was not made by `rela rank`; choose another --output")
        begun = read_json(self.record)
        if not isinstance(begun, dict) or begun.get("format") != FORMAT:
            raise InputError(f"{self.record}: made by another version of `rela rank`; choose another --output")
        for part in parts:
            for name, value in state[part].items():
                if begun.get(part, {}).get(name) != value:
                    what = name.replace("_", " ")
                    raise InputError(f"{path} was made with another {what}; remove it or choose another --output")


def _complete_blocks(file: IO[bytes], size: int) -> Tuple[int, int]:
    """Return the number of pairs in the complete blocks of ``size`` pairs, and the byte position of their end.

    The position is 0 if the file does not begin with the header.
    """
    if file.readline() != _HEADER:
        return 0, 0
    done, end, position = 0, len(_HEADER), len(_HEADER)
    for number, line in enumerate(file):
        # after a power failure, the end of the file may hold any bytes
        if not (line.startswith(b"%d\t" % number) and line.count(b"\t") == 5 and line.endswith(b"\n")):
            break
        position += len(line)
        if (number + 1) % size == 0:
            done, end = number + 1, position
    return done, end
