"""Convert a line of raw text to tokens and back: control characters, punctuation, Moses or jieba tokenisation.

See :mod:`.moses` for Moses' rules; what is particular to Romanian and to Chinese is here.
"""

import logging
import re
import string
import unicodedata
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Callable, Iterator, List, Optional

import regex

from ..errors import InputError
from .moses import Detokenizer, Normaliser, Scripts, Tokenizer

# All control, format, surrogate, private-use and unassigned characters, and the line and paragraph separators. Each
# becomes a space, as in Moses' remove-non-printing-char.perl.
_NON_PRINTING = regex.compile(r"[\p{C}\u2028\u2029]")
# the characters at which some program may end a line, and those that UTF-8 cannot encode
_BREAKS = regex.compile(r"[\p{Cc}\p{Cs}\u2028\u2029]")
_SPACES = re.compile(r"\s+")
# "@@ " marks a BPE piece that is not the end of a word, so a text must not contain it
_DOUBLED_AT = re.compile(r"@(?=@)")

TOKENISERS = ("moses", "none")
# Symbols that fairseq's dictionaries reserve, also inside a word, because BPE may split a word there; and BPE's
# end-of-word mark, on which subword-nmt can run forever.
_SPECIAL_SYMBOL = re.compile(r"<(s|pad|/s|unk|/w)>")

_ROMANIAN_DECOMPOSED = re.compile("[sStT][\u0326\u0327]|[aA][\u0306\u0302]|[iI]\u0302")
_ROMANIAN_OTHER_FORMS = re.compile("[\u0302\u0306\u0326\u0327\u015e\u015f\u0162\u0163]")
_CEDILLA_TO_COMMA = str.maketrans("\u015e\u015f\u0162\u0163", "\u0218\u0219\u021a\u021b")
_ROMANIAN_PLAIN = str.maketrans("\u0218\u0219\u021a\u021bĂăÂâÎî", "SsTtAaAaIi")

# jieba makes a word of each full-width letter. Punctuation is kept: it is always full-width in Chinese.
_FULL_WIDTH = {ord(c) + 0xFEE0: c for c in "0123456789" + string.ascii_letters}

# a space with neither a Latin letter nor a digit beside it
_CHINESE_SPACE = regex.compile(r"(?<![\p{Latin}\p{Nd}]) (?![\p{Latin}\p{Nd}])")


def clean_characters(line: str) -> str:
    """Replace each run of white space and non-printing characters by one space, and strip the ends."""
    return _SPACES.sub(" ", _NON_PRINTING.sub(" ", line)).strip()


# Stanford NLP's mark for a split hyphen (WMT14 English-German), and XML entities that were tokenised a second time
# (WMT18 Chinese-English)
_STANFORD_HYPHEN = "##AT##-##AT##"
_SPLIT_ENTITY = re.compile(r"& (amp|apos|quot|lt|gt|#124|#91|#93) ;( (?:s|t|re|ve|ll|d|m)(?= |$))?")


def repair_tokens(line: str) -> str:
    """Return published tokens in the form of Moses: ``##AT##-##AT##`` as ``@-@``, ``& apos ; s`` as ``&apos;s``."""

    def entity(match: "re.Match[str]") -> str:
        name, clitic = match.groups()
        return f"&{name};" + ((clitic.strip() if name == "apos" else clitic) if clitic else "")

    return _SPLIT_ENTITY.sub(entity, line.replace(_STANFORD_HYPHEN, "@-@"))


def has_diacritics(line: str) -> bool:
    """Return whether Romanian text has letters that ``remove_diacritics`` replaces."""
    return line != line.translate(_ROMANIAN_PLAIN)


class Preprocessor:
    """Function that turns a line of raw text in one language into tokens with single spaces between them.

    Args:
        language: ISO 639-1 code; unknown codes are treated as English, as in Moses.
        tokeniser: ``moses`` runs normalize-punctuation, then tokenizer -a with escaping; for Chinese it runs jieba
            instead, without normalisation or escaping. ``none`` is for tokenised text: it only replaces characters
            that would break a line or a word.
        remove_diacritics: remove Romanian diacritics, as Sennrich's scripts for WMT16 do. Cedillas become commas
            below in any case.
        normalise_width: replace full-width Latin letters and digits by ASCII. This matters for Chinese: jieba cuts
            ``ＡＢＣ`` into three tokens and keeps ``ABC`` whole.
        moses_scripts: folder of a Moses checkout, whose Perl scripts then replace sacremoses. The output is the
            same. Use :meth:`process_lines` then, because each call starts Perl.

    Raises:
        InputError: ``remove_diacritics`` for another language, a missing script, or jieba is not installed.
    """

    def __init__(
        self,
        language: str,
        tokeniser: str = "moses",
        remove_diacritics: bool = False,
        moses_scripts: Optional[Path] = None,
        normalise_width: bool = False,
    ) -> None:
        if remove_diacritics and language != "ro":
            raise InputError(f"diacritics can be removed from Romanian (ro) only, not from {language!r}")
        self.language = language
        self.tokeniser = tokeniser
        self._remove_diacritics = remove_diacritics
        self._normalise_width = normalise_width
        self._cut = _jieba_cut() if tokeniser == "moses" and language == "zh" else None
        self._scripts: Optional[Scripts] = None
        if tokeniser == "moses" and language != "zh":
            if moses_scripts is not None:
                self._scripts = Scripts(moses_scripts, language)
            else:
                self._normaliser = Normaliser(language)
                self._tokenizer = Tokenizer(language)

    def __call__(self, line: str) -> str:
        if self._scripts is not None:
            return self.process_lines([line])[0]
        line = _DOUBLED_AT.sub("@ ", self._narrow(line))
        if self.tokeniser == "none" or self._cut is not None:
            line = clean_characters(line)
            tokens = line if self._cut is None else " ".join(self._cut(line))
            return _SPECIAL_SYMBOL.sub(r"&lt;\1&gt;", " ".join(tokens.split()))  # escaped as Moses does
        # the rules in Perl see the end of the line
        line = self._normaliser.normalize(self._composed(_BREAKS.sub(" ", line)) + "\n")
        line = self._between(line)
        line = self._tokenizer.tokenize(line, aggressive_dash_splits=True, return_str=True, escape=True)
        return " ".join(line.split())

    def process_lines(self, lines: List[str]) -> List[str]:
        """Return the tokens of each line of a block.

        Raises:
            InputError: a Moses script failed.
        """
        if self._scripts is None:
            return [self(line) for line in lines]
        block = [self._composed(_BREAKS.sub(" ", _DOUBLED_AT.sub("@ ", self._narrow(line)))) for line in lines]
        block = [self._between(line) for line in self._scripts.normalise(block)]
        return [" ".join(line.split()) for line in self._scripts.tokenise(block)]

    def _narrow(self, line: str) -> str:
        return line.translate(_FULL_WIDTH) if self._normalise_width else line

    def _composed(self, line: str) -> str:
        """Return the line with each Romanian letter in one form, which the punctuation rules beside quotes need."""
        if self.language == "ro" and _ROMANIAN_OTHER_FORMS.search(line):
            line = _ROMANIAN_DECOMPOSED.sub(lambda match: unicodedata.normalize("NFC", match.group()), line)
            line = line.translate(_CEDILLA_TO_COMMA)
        return line

    def _between(self, line: str) -> str:
        """Apply the steps between punctuation normalisation and tokenisation."""
        line = _NON_PRINTING.sub(" ", line)
        if self._remove_diacritics:
            line = line.translate(_ROMANIAN_PLAIN)
        return line


class Detokeniser:
    """Function that turns tokens without BPE into text by Moses' rules; it also undoes escapes and ``@-@``.

    A line that starts with "<" and ends with ">" is detokenised like any other, because it may start and end with
    <unk>; detokenizer.perl treats it as XML. In Chinese, a space is removed if neither neighbour is a Latin letter
    or a digit, as for WMT17.

    Args:
        language: ISO 639-1 code.
        tokeniser: as for :class:`Preprocessor`; ``none`` leaves the tokens unchanged.
    """

    def __init__(self, language: str, tokeniser: str = "moses") -> None:
        self._chinese = tokeniser == "moses" and language == "zh"
        self._detokenizer: Optional[Detokenizer] = None
        if tokeniser == "moses" and not self._chinese:
            self._detokenizer = Detokenizer(language)

    def __call__(self, line: str) -> str:
        if self._chinese:
            return _CHINESE_SPACE.sub("", " ".join(line.split()))
        if self._detokenizer is None:
            return line
        return self._detokenizer.detokenize(line.split())


@lru_cache(maxsize=None)
def _jieba_cut() -> Callable[[str], Iterator[str]]:
    try:
        with warnings.catch_warnings():
            # jieba warns about pkg_resources and, from Python 3.12 on, about its regular expressions
            warnings.simplefilter("ignore")
            import jieba
    except ImportError as error:
        raise InputError(f"Chinese needs jieba ({error}); run: pip install jieba") from error
    jieba.setLogLevel(logging.WARNING)
    tokenizer = jieba.Tokenizer()
    # initialize() would use a cache in the temporary folder, which all users and processes share
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    return tokenizer.cut
