"""A folder of prepared data, opened once and handed on."""

from functools import cached_property
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from ..errors import InputError
from ..files.lines import PathLike, read_lines
from ..files.records import read_json, sha256
from ..identity import TASK_STATE, dictionary_checksum, identity, refuse_other_data
from ..text import bpe, truecase
from ..text.preprocess import Preprocessor
from .settings import Settings

RECORD = "prepare.json"
CODES = "bpecodes"
TRUECASE_MODEL = "truecase-model"  # followed by .LANG


class DataFolder:
    """A folder that ``rela prepare`` has made, with its record.

    Attributes:
        path: the folder.
        record: the content of ``prepare.json``: versions, settings, counts and checksums.
        settings: how the text was prepared.

    Raises:
        InputError: the folder was not made by ``rela prepare``, or by a version with other records.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = Path(path)
        if not self.is_prepared(self.path):
            raise InputError(f"{path}: no {RECORD}, so this is not a data folder of `rela prepare`")
        self.record: Dict[str, Any] = read_json(self.path / RECORD)
        parts = ("settings", "inputs", "outputs", "splits")
        try:
            if not all(isinstance(self.record[part], dict) for part in parts):
                raise TypeError("a part is not a mapping")
            self.settings = Settings(**self.record["settings"])
        except (TypeError, KeyError, InputError) as error:
            raise InputError(
                f"{self.path / RECORD}: not a record of `rela prepare`, or of another version; prepare the data again"
            ) from error

    @staticmethod
    def is_prepared(path: Path) -> bool:
        """Return whether `rela prepare` has made a folder; folders of fairseq-preprocess have no record."""
        return (path / RECORD).is_file()

    def __str__(self) -> str:
        return str(self.path)

    @property
    def languages(self) -> Tuple[str, str]:
        """Source and target language."""
        return self.settings.languages

    @property
    def pair(self) -> str:
        """Source and target language as fairseq writes them in file names, such as ``en-de``."""
        return "-".join(self.languages)

    @property
    def outputs(self) -> Dict[str, str]:
        """The recorded checksum of each file: its name in the folder to SHA-256."""
        return self.record["outputs"]

    def binarised(self, split: str) -> List[str]:
        """Return the names of the binarised files of a split."""
        return [f"{split}.{self.pair}.{lang}.{kind}" for lang in self.languages for kind in ("bin", "idx")]

    def refuse_changed(self, names: Iterable[str]) -> None:
        """Compare files of the folder with the checksums in its record.

        Raises:
            InputError: a file is missing, or has changed since it was prepared.
        """
        for name in names:
            path = self.path / name
            if not path.is_file() or sha256(path) != self.outputs.get(name):
                raise InputError(f"{path} is missing or has changed since it was prepared; prepare the data again")

    # --- text to ids ---

    def text_files(self) -> List[str]:
        """Return the names of the files that decide how text becomes ids."""
        names = [CODES]
        for lang in self.languages:
            names += [f"vocab.{lang}", f"dict.{lang}.txt"]
            names += [f"{TRUECASE_MODEL}.{lang}"] if self.settings.has_case(lang) else []
        return names

    def preprocessor(self, lang: str, tokeniser: Optional[str] = None) -> Preprocessor:
        """Return a preprocessor that normalises and tokenises one language, see :func:`make_preprocessor`."""
        return make_preprocessor(self.settings, lang, tokeniser)

    def truecaser(self, lang: str) -> Callable[[str], str]:
        """Return a function that truecases a line of tokens; it changes nothing if the data are not truecased."""
        if not self.settings.has_case(lang):
            return str
        return truecase.Truecaser.load(self.path / f"{TRUECASE_MODEL}.{lang}")

    def segmenter(self, lang: str) -> bpe.Segmenter:
        """Return the segmenter that splits words of one language into the BPE pieces of this folder."""
        return bpe.load_segmenter(self.path / CODES, self.path / f"vocab.{lang}", self.settings.vocabulary_threshold)

    def segment(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the BPE pieces of raw source lines, made as for the training text."""
        lang = self.settings.source_lang
        preprocess, recase, segmenter = self.preprocessor(lang), self.truecaser(lang), self.segmenter(lang)
        for line in lines:
            yield segmenter.process_line(recase(preprocess(line)))

    def pieces(self, lang: str) -> List[str]:
        """Return the pieces of the dictionary of one language, in order, without the special symbols."""
        return [line.rpartition(" ")[0] for line in read_lines(self.path / f"dict.{lang}.txt")]

    # --- models ---

    @cached_property
    def identity(self) -> Dict[str, str]:
        """What a model's training data must have in common with this folder, see :mod:`fairseq_rela.identity`."""
        return identity(*self.languages, *(dictionary_checksum(self.pieces(lang)) for lang in self.languages))

    def refuse_model(self, checkpoint: Path, state: Optional[Dict[str, Any]] = None) -> None:
        """Raise if a checkpoint was trained with other dictionaries than those of this folder.

        Args:
            checkpoint: the checkpoint file; ``train.json`` beside it, if there is one, is checked too.
            state: the loaded checkpoint; if it is None, only ``train.json`` is checked.

        Raises:
            InputError: the checkpoint or ``train.json`` records other dictionaries.
        """
        if state is not None:
            trained = (state.get("task_state") or {}).get(TASK_STATE)
            refuse_other_data(trained, self.identity, checkpoint, self.path)
        trained_with = _recorded_dictionaries(checkpoint.parent / "train.json")
        for name in self.outputs if trained_with else ():
            if name.startswith("dict.") and trained_with.get(name) != self.outputs[name]:
                raise InputError(
                    f"{checkpoint} was trained with another {name} than that of {self.path}; give the data that it was "
                    "trained on"
                )


def _recorded_dictionaries(run: Path) -> Dict[str, Any]:
    """Return the dictionaries in the record of a run, name to checksum; none if another program has made the file."""
    if not run.is_file():
        return {}
    try:
        return {name: checksum for name, checksum in read_json(run)["data"].items() if name.startswith("dict.")}
    except (InputError, TypeError, KeyError, AttributeError):
        return {}


def make_preprocessor(
    settings: Settings, lang: str, tokeniser: Optional[str] = None, moses: Optional[Path] = None
) -> Preprocessor:
    """Return a preprocessor that normalises and tokenises one language.

    Args:
        settings: those of the data.
        lang: the language.
        tokeniser: replaces the tokeniser of the settings if given.
        moses: a checkout of Moses, whose scripts are then used.
    """
    diacritics = settings.remove_diacritics and lang == "ro"
    return Preprocessor(lang, tokeniser or settings.tokeniser, diacritics, moses, settings.normalise_width)
