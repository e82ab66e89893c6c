"""The sentences of a subset of a data folder: their pieces, their words and the tags of their words."""

import copy
import sys
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from fairseq.data import Dictionary, LanguagePairDataset

from ..alignment import word_ids
from ..data.folder import DataFolder
from ..errors import InputError
from ..files.lines import PathLike, read_lines
from ..files.records import sha256

END = "</s>"


class Sentence(NamedTuple):
    """The pieces of a source and a target sentence; the last piece of each is ``</s>``."""

    source: List[str]
    target: List[str]

    @property
    def lengths(self) -> Tuple[int, int]:
        """The numbers of words of both sides."""
        return len(join_words(self.source)), len(join_words(self.target))


def join_words(pieces: Sequence[str]) -> List[str]:
    """Return the words of a sentence; a word whose last piece is missing ends at the end of the sentence.

    Args:
        pieces: one side of a :class:`Sentence`.
    """
    words: List[str] = []
    for word, piece in zip(word_ids(pieces[:-1]), pieces):
        if word == len(words):
            words.append("")
        words[word] += piece[:-2] if piece.endswith("@@") else piece
    return words


def load_dataset(task: Any, subset: str) -> LanguagePairDataset:
    """Return a subset as fairseq's dataset, with padding on the right: piece i of a sentence is at position i.

    Raises:
        InputError: the subset does not exist, is empty or has no target side.
    """
    try:
        task.load_dataset(subset)
    except (FileNotFoundError, OSError) as error:
        raise InputError(f"no subset {subset!r} in the data folder ({error}); give another one") from error
    dataset = task.dataset(subset)
    if not isinstance(dataset, LanguagePairDataset) or dataset.tgt is None:
        raise InputError(f"subset {subset!r} has no target sentences, which the analysis needs; give another one")
    if not len(dataset):
        raise InputError(f"subset {subset!r} is empty; give another one")
    dataset = copy.copy(dataset)
    dataset.left_pad_source = False
    return dataset


def _sides(task: Any) -> List[Tuple[str, Dictionary]]:
    """Return language and dictionary of the source and of the target."""
    return [(task.cfg.source_lang, task.source_dictionary), (task.cfg.target_lang, task.target_dictionary)]


def read_sentences(task: Any, data: Path, subset: str) -> List[Sentence]:
    """Return the pieces of all sentences of ``subset``, in the order of the subset.

    The pieces are read from ``bpe/SUBSET.LANG`` if the data folder has this file, which ``rela prepare`` writes, else
    from the binarised data. There, an unknown piece is ``<unk>``, so it is not known whether its word ends with it.

    Raises:
        InputError: the subset does not exist, is empty or has no target side, or the text is not the text that was
            binarised.
    """
    dataset = load_dataset(task, subset)
    sides = []
    for (lang, dictionary), sentences in zip(_sides(task), (dataset.src, dataset.tgt)):
        pieces = [[dictionary[int(token)] for token in tokens] for tokens in sentences]
        text = data / "bpe" / f"{subset}.{lang}"
        sides.append(_with_unknown_pieces(pieces, text, dictionary.unk_word) if text.is_file() else pieces)
    return [Sentence(source, target) for source, target in zip(*sides)]


def _with_unknown_pieces(pieces: List[List[str]], text: Path, unknown: str) -> List[List[str]]:
    lines = [[*line.split(), END] for line in read_lines(text)]
    same = len(lines) == len(pieces) and all(
        len(line) == len(sentence) and all(a in (b, unknown) for a, b in zip(sentence, line))
        for sentence, line in zip(pieces, lines)
    )
    if not same:
        raise InputError(f"{text} is not the text of the binarised data; prepare the data again")
    return lines


def refuse_hidden_words(sentences: Sequence[Sentence], task: Any, data: Path, subset: str, has_gold: bool) -> None:
    """Check that it is known where words with unknown pieces end; print a warning if it is not.

    In binarised data, an unknown piece is ``<unk>``, whether or not it had the mark ``@@``, after which a word
    continues. Without the pieces in ``bpe/SUBSET.LANG``, one such word can count as several, and the numbers of later
    words are wrong.

    Raises:
        InputError: it is not known, and there is a gold alignment.
    """
    hidden = 0
    for side, (lang, dictionary) in enumerate(_sides(task)):
        if not (data / "bpe" / f"{subset}.{lang}").is_file():
            hidden += sum(dictionary.unk_word in pair[side] for pair in sentences)
    if not hidden:
        return
    what = (
        f"{data}: {hidden} sentences of {subset} have unknown pieces, and without bpe/{subset}.LANG beside the "
        "binarised data it is not known where their words end"
    )
    if has_gold:
        raise InputError(f"{what}; put the BPE text there, or give the text by --source and --target")
    print(f"warning: {what}; measurements of words are inexact", file=sys.stderr)


def read_tags(path: Optional[PathLike], words: Sequence[int]) -> Optional[List[List[str]]]:
    """Return the tags of the words of each sentence, or None without a file.

    Args:
        path: file with one line for each sentence and one tag for each word.
        words: number of words of each sentence.

    Raises:
        InputError: the number of lines is not that of the sentences, or a line does not have one tag for each word.
    """
    if path is None:
        return None
    tags = [line.split() for line in read_lines(path)]
    if len(tags) != len(words):
        raise InputError(f"{path} has {len(tags)} lines for {len(words)} sentences; give a line of tags for each")
    for number, (line, expected) in enumerate(zip(tags, words), 1):
        if len(line) != expected:
            raise InputError(f"{path}, line {number}: {len(line)} tags for {expected} words; give a tag for each word")
    return tags


def data_checksums(data: Path, subset: str) -> Dict[str, str]:
    """Return the checksums of the files of a subset: name to SHA-256.

    In a folder of ``rela prepare``, these are the recorded checksums, and the files must match them.

    Raises:
        InputError: the subset does not exist, or a file has changed since it was prepared.
    """
    files = sorted(path for path in data.glob(f"{subset}.*-*.*") if path.suffix in (".bin", ".idx"))
    files = files or [path for path in (data / f"{subset}.bin", data / f"{subset}.idx") if path.is_file()]
    if not files:
        raise InputError(f"no subset {subset!r} in {data}; give a folder of `rela prepare` or fairseq-preprocess")
    if DataFolder.is_prepared(data):
        folder = DataFolder(data)
        names = [name for name in folder.outputs if name.startswith(f"{subset}.")]
        folder.refuse_changed(names)
        return {name: folder.outputs[name] for name in names}
    return {path.name: sha256(path) for path in files}
