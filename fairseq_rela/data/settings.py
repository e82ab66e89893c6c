"""The settings that determine prepared data."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Tuple

from ..corpora.spec import SPLITS
from ..errors import InputError
from ..files.configs import load_defaults
from ..files.plain_text import refuse_not_text
from ..text.preprocess import TOKENISERS

MAX_POSITIONS = 1024  # of the models, with the end-of-sentence symbol; fairseq refuses longer test sentences


def _default(name: str) -> Any:
    """Return a field whose default is the value in ``configs/defaults/preparation.yaml``."""
    return field(default_factory=lambda: load_defaults("preparation")[name])


@dataclass
class Settings:
    """The settings that determine the data: two runs with equal settings and inputs give equal bytes.

    Attributes:
        source_lang, target_lang: ISO 639-1 codes.
        tokeniser: ``moses`` (jieba for Chinese), or ``none`` for text that is already tokenised.
        tokenised: splits that are already tokenised and truecased while the others are not.
        truecase: learn the usual case of each word from the training text, and give it to the first word of a sentence.
        remove_diacritics: remove the diacritics of Romanian.
        max_tokens: drop training pairs with more tokens than this on a side.
        max_ratio: drop training pairs in which one side has more than this many times the tokens of the other.
        max_pieces: drop training pairs with more BPE pieces than this on a side.
        remove_duplicates: drop training pairs whose tokens are the same as those of an earlier pair.
        merges: number of BPE merge operations, learnt on both languages together.
        vocabulary_threshold: BPE splits a piece further if it is rarer than this in the training text of its language.
        normalise_width: replace full-width Latin letters and digits by those of ASCII.
    """

    source_lang: str
    target_lang: str
    tokeniser: str = _default("tokeniser")
    tokenised: List[str] = field(default_factory=list)
    truecase: bool = False
    remove_diacritics: bool = False
    max_tokens: int = _default("max_tokens")
    max_ratio: float = _default("max_ratio")
    max_pieces: int = _default("max_pieces")
    remove_duplicates: bool = False
    merges: int = _default("merges")
    vocabulary_threshold: int = _default("vocabulary_threshold")
    normalise_width: bool = False

    def __post_init__(self) -> None:
        for name in ("source_lang", "target_lang"):
            require_language(f"--{name.replace('_', '-')}", getattr(self, name))
        if self.source_lang == self.target_lang:
            raise InputError(f"source and target language are both {self.source_lang}; give two different codes")
        if self.tokeniser not in TOKENISERS:
            raise InputError(f"--tokeniser {self.tokeniser}: choose one of {', '.join(TOKENISERS)}")
        for name in ("truecase", "remove_diacritics", "remove_duplicates", "normalise_width"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"--{name.replace('_', '-')} {getattr(self, name)!r}: must be true or false")
        if not isinstance(self.tokenised, list):
            raise InputError(f"--tokenised {self.tokenised!r}: must be a list of {', '.join(SPLITS)}")
        for split in self.tokenised:
            if split not in SPLITS:
                raise InputError(f"--tokenised {split}: choose one of {', '.join(SPLITS)}")
        if self.remove_diacritics and "ro" not in self.languages:
            raise InputError("--remove-diacritics is for Romanian (ro); leave it out")
        for name in ("max_tokens", "max_ratio", "max_pieces", "merges", "vocabulary_threshold"):
            value, kinds = getattr(self, name), (int, float) if name == "max_ratio" else (int,)
            if isinstance(value, bool) or not isinstance(value, kinds) or not value >= 1:
                what = "a number" if name == "max_ratio" else "a whole number"
                raise InputError(f"--{name.replace('_', '-')} {value}: must be {what} of at least 1")
        if self.max_pieces > MAX_POSITIONS - 1:
            raise InputError(f"--max-pieces {self.max_pieces}: the models have room for {MAX_POSITIONS - 1}")

    @property
    def languages(self) -> Tuple[str, str]:
        """Source and target language."""
        return self.source_lang, self.target_lang

    def record(self) -> Dict[str, Any]:
        """Return the settings for a record, with ``normalise_width`` only if it is set, as older records lack it."""
        return {name: value for name, value in asdict(self).items() if value or name != "normalise_width"}

    def has_case(self, lang: str) -> bool:
        """Return whether the data of a language are truecased; Chinese has no case."""
        return self.truecase and lang != "zh"


def require_language(option: str, lang: Any) -> None:
    """Check that a value is a language code that can be a part of file names.

    Raises:
        InputError: it is not a string of letters, digits and underscores; the message names ``option``.
    """
    if not isinstance(lang, str) or not lang.replace("_", "").isalnum():
        hint = "" if isinstance(lang, str) else ", in quotes, or YAML takes no for false"
        raise InputError(f"{option} {lang!r}: give a language code such as en{hint}")


def refuse_other_side(path: Path, lang: str, other: str) -> None:
    """Refuse a file for the language ``lang`` whose name ends in the code of the language ``other``.

    Raises:
        InputError: the name ends in ``.OTHER`` or ``.OTHER.gz``.
    """
    name = path.name[:-3] if path.name.endswith(".gz") else path.name
    if name.endswith(f".{other}"):
        raise InputError(f"{path} ends in .{other}, and text of {lang} belongs here; are the two sides swapped?")


def refuse_unfit_pair(source: Path, target: Path, settings: Settings) -> None:
    """Refuse two files that cannot be the two sides of a corpus: swapped, the same file, or no plain text.

    Raises:
        InputError: the name of one ends in the language of the other, both are one file, or one is not plain text.
    """
    refuse_other_side(source, settings.source_lang, settings.target_lang)
    refuse_other_side(target, settings.target_lang, settings.source_lang)
    if source.resolve() == target.resolve():
        raise InputError(f"{source} is given for both sides; give the source and its translation")
    for path in (source, target):
        refuse_not_text(path)
