"""Convert the raw text of sentence pairs to ids, as the training text of a data folder was converted."""

from typing import Any, List, NamedTuple, Sequence, Tuple

from ..data.folder import DataFolder
from ..errors import InputError
from ..text.preprocess import repair_tokens


class Encoded(NamedTuple):
    """The ids of both sides with the end of sentence; ``reason`` is why the pair cannot be scored, or empty."""

    source: List[int]
    target: List[int]
    reason: str = ""


class PairEncoder:
    """Convert raw text of both sides to ids, with the preparation steps of a data folder.

    If the training text of the data folder was given tokenised and truecased, this text must be so too.

    Attributes:
        tokenised: whether the training text was given tokenised.

    Args:
        data: a data folder.
        dictionaries: dictionaries of source and target.
        longest: most ids of source and target that the model can take.
    """

    def __init__(self, data: DataFolder, dictionaries: Tuple[Any, Any], longest: Tuple[int, int]) -> None:
        self.tokenised = "train" in data.settings.tokenised
        self._dictionaries = dictionaries
        self._longest = longest
        self._sides = [self._steps(data, lang) for lang in data.languages]

    def _steps(self, data: DataFolder, lang: str) -> Tuple[Any, Any, Any]:
        preprocess = data.preprocessor(lang, "none" if self.tokenised else None)
        recase = str if self.tokenised else data.truecaser(lang)
        return preprocess, recase, data.segmenter(lang)

    def __call__(self, sources: Sequence[str], targets: Sequence[str]) -> List[Encoded]:
        """Return the ids of each pair of sentences."""
        return [self._pair(*pair) for pair in zip(sources, targets)]

    def _pair(self, *texts: str) -> Encoded:
        sides: List[List[int]] = []
        reasons: List[str] = []
        for side, (name, text) in enumerate(zip(("source", "target"), texts)):
            try:
                pieces = self._pieces(side, text)
            except InputError:  # a word looks like a BPE piece, which no training text contains
                sides.append([])
                reasons.append(f"unsplittable {name}")
                continue
            dictionary = self._dictionaries[side]
            ids = [dictionary.indices.get(piece, dictionary.unk()) for piece in pieces]
            sides.append([*ids, dictionary.eos()])
            if not ids:
                reasons.append(f"empty {name}")
            elif len(ids) >= self._longest[side]:
                reasons.append(f"long {name}")
        return Encoded(sides[0], sides[1], ", ".join(reasons))

    def _pieces(self, side: int, text: str) -> List[str]:
        preprocess, recase, segmenter = self._sides[side]
        tokens = preprocess(repair_tokens(text) if self.tokenised else text)
        return segmenter.process_line(recase(tokens)).split()
