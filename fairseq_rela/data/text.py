"""One line of raw text to tokens and back: control characters, punctuation, Moses tokenisation.

Moses through sacremoses, with the corrections that make its output that of the Perl scripts.
"""

import re
from functools import lru_cache
from typing import List

import regex
from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
from sacremoses.corpus import NonbreakingPrefixes

# Everything that Unicode calls a control, format, surrogate, private or unassigned character, and the line and
# paragraph separators, which it calls separators. As Moses' remove-non-printing-char.perl, each becomes a space.
_NON_PRINTING = regex.compile(r"[\p{C}\u2028\u2029]")
_SPACES = re.compile(r"\s+")
# "@@ " is BPE's mark for a word that goes on, so a text must not bring its own
_DOUBLED_AT = re.compile(r"@(?=@)")
_FINAL_PERIOD = re.compile(r"(?<=[^\s.])\.$")

TOKENISERS = ("moses", "none")
# what fairseq's dictionaries reserve, and Moses' escape of the same
_SPECIAL_SYMBOLS = {
    symbol: symbol.replace("<", "&lt;").replace(">", "&gt;") for symbol in ("<s>", "<pad>", "</s>", "<unk>")
}


def clean_characters(line: str) -> str:
    """One space for every run of white space and of characters that do not print; none at the ends."""
    return _SPACES.sub(" ", _NON_PRINTING.sub(" ", line)).strip()


class Preprocessor:
    """Raw text of one language to tokens with single spaces.

    Args:
        language: its ISO 639-1 code; unknown ones are treated as English, as Moses does.
        tokeniser: ``moses`` (normalise-punctuation, then tokenizer -a with escapes), or ``none`` where the
            text is tokenised already: only characters that would break a line or a word are replaced.
    """

    def __init__(self, language: str, tokeniser: str = "moses") -> None:
        self.tokeniser = tokeniser
        if tokeniser == "moses":
            self._normaliser = _punctuation_normaliser(language)
            self._tokenizer = MosesTokenizer(lang=_moses_language(language))

    def __call__(self, line: str) -> str:
        line = clean_characters(_DOUBLED_AT.sub("@ ", line))
        if self.tokeniser == "none":
            return " ".join(_SPECIAL_SYMBOLS.get(token, token) for token in line.split())
        # Perl's rules see the line end
        line = self._normaliser.normalize(line + "\n")
        line = self._tokenizer.tokenize(line, aggressive_dash_splits=True, return_str=True, escape=True)
        # Moses splits the final period of a line even after an abbreviation, sacremoses does not
        return clean_characters(_FINAL_PERIOD.sub(" .", line.strip()))


class Detokeniser:
    """Tokens of one language, with BPE undone, to text: Moses' rules, escapes and ``@-@`` undone.

    Args:
        language: its ISO 639-1 code.
        tokeniser: as for :class:`Preprocessor`; ``none`` leaves the tokens as they are.
    """

    def __init__(self, language: str, tokeniser: str = "moses") -> None:
        self._detokenizer = MosesDetokenizer(lang=_moses_language(language)) if tokeniser == "moses" else None

    def __call__(self, line: str) -> str:
        if self._detokenizer is None:
            return line
        return self._detokenizer.detokenize(line.split())


def _punctuation_normaliser(language: str) -> MosesPunctNormalizer:
    normaliser = MosesPunctNormalizer(lang=language, perl_parity=True)
    if language not in ("en", "cs", "de", "es", "fr"):
        # Perl has the rule for quotes and commas in every language but English and Czech
        rules: List = normaliser.substitutions
        end = len(rules) - len(normaliser.OTHER)
        rules[end:end] = normaliser.DE_ES_FR_QUOTATION_FOLLOWED_BY_COMMA
    return normaliser


@lru_cache(maxsize=None)
def _moses_language(language: str) -> str:
    return language if language in NonbreakingPrefixes().available_langs.values() else "en"
