"""Convert a line of raw text to tokens and back: control characters, punctuation, Moses or jieba tokenisation.

Moses runs through sacremoses, with corrections that make its output equal to that of the Perl scripts, or through
the Perl scripts themselves. The corrections are for sacremoses 0.1.1 and 0.2.
``MOSES=<checkout> pytest tests/test_text.py`` compares both.
"""

import logging
import re
import string
import subprocess
import unicodedata
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

import regex
from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
from sacremoses.corpus import NonbreakingPrefixes

from ..errors import InputError

# All control, format, surrogate, private-use and unassigned characters, and the line and paragraph separators. Each
# becomes a space, as in Moses' remove-non-printing-char.perl.
_NON_PRINTING = regex.compile(r"[\p{C}\u2028\u2029]")
# those at which some program may end a line, and those that UTF-8 cannot encode
_BREAKS = regex.compile(r"[\p{Cc}\p{Cs}\u2028\u2029]")
_SPACES = re.compile(r"\s+")
# "@@ " marks a BPE piece that is not the end of a word, so a text must not contain it
_DOUBLED_AT = re.compile(r"@(?=@)")

TOKENISERS = ("moses", "none")
# Symbols that fairseq's dictionaries reserve, also inside a word, because BPE may split a word there; and BPE's
# end-of-word mark, on which subword-nmt can run forever.
_SPECIAL_SYMBOL = re.compile(r"<(s|pad|/s|unk|/w)>")

# as in Unicode and Perl; sacremoses' own lists are older and lack Chinese and other scripts
_ALPHA = r"\p{Alphabetic}"
_ALNUM = r"\p{Alphabetic}\p{Nd}"

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
        self._scripts: Optional[_Scripts] = None
        if tokeniser == "moses" and language != "zh":
            if moses_scripts is not None:
                self._scripts = _Scripts(moses_scripts, language)
            else:
                self._normaliser = _Normaliser(language)
                self._tokenizer = _Tokenizer(_moses_language(language))

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
        self._detokenizer: Optional[_Detokenizer] = None
        if tokeniser == "moses" and not self._chinese:
            self._detokenizer = _Detokenizer(_moses_language(language))

    def __call__(self, line: str) -> str:
        if self._chinese:
            return _CHINESE_SPACE.sub("", " ".join(line.split()))
        if self._detokenizer is None:
            return line
        return self._detokenizer.detokenize(line.split())


class _Pattern:
    """A compiled pattern that is tried only on texts with ``needs``, a string that every match contains."""

    def __init__(self, pattern: Any, needs: str) -> None:
        self._sub: Callable[[str, str], str] = pattern.sub
        self._needs = needs

    def sub(self, replacement: str, text: str) -> str:
        return self._sub(replacement, text) if self._needs in text else text


class _Normaliser(MosesPunctNormalizer):
    def __init__(self, language: str) -> None:
        super().__init__(lang=language, perl_parity=True)
        rules: List[Tuple[str, str]] = self.substitutions
        if language not in ("en", "cs", "cz", "de", "es", "fr"):
            # Perl applies the rule for quotes and commas in all languages but English and Czech
            end = len(rules) - len(self.OTHER)
            rules[end:end] = self.DE_ES_FR_QUOTATION_FOLLOWED_BY_COMMA
        # Perl turns all of these single quotes into double ones, perl_parity only ’; CR was removed before
        self.substitutions = [(rule, '"' if rule in ("‘", "‚") else by) for rule, by in rules if rule != r"\r"]
        # Perl works on bytes here, so \d matches ASCII digits only
        self._rules = [(_needed(rule), re.compile(rule, re.ASCII).sub, by) for rule, by in self.substitutions]

    def normalize(self, text: str) -> str:
        for needed, substitute, replacement in self._rules:
            if needed in text:
                text = substitute(replacement, text)
        return text


def _needed(rule: str) -> str:
    """Return a string that every match of a rule of the normaliser contains."""
    if rule == " +":
        return "  "  # replacing one space by one space changes nothing
    if not re.search(r"\\[ds]|[\[+*]|(?<!\\)[()]", rule):
        return rule.replace("\\", "")
    # remove classes, groups and quantifiers; space and period are too common to be useful
    return re.sub(r"\\[ds][*+]?|\[.*?\][*+]?|(?<!\\)[()+]|\\", "", rule).strip(" .")


class _Tokenizer(MosesTokenizer):
    def __init__(self, language: str) -> None:
        super().__init__(lang=language)
        self.NUMERIC_ONLY_PREFIXES = set(self.NUMERIC_ONLY_PREFIXES)
        self.NONBREAKING_PREFIXES = set(self.NONBREAKING_PREFIXES)
        self._is_alpha = regex.compile(f"[{_ALPHA}]").search
        self._is_lower = regex.compile(r"\p{Lowercase}").match
        other = rf"[^{_ALNUM}\s.'`,\-]"
        if language in ("fi", "sv"):
            # the colon stays in EU:ssa; in sacremoses this rule is commented out
            other = rf"(?!:\p{{Ll}}){other}"
        self.PAD_NOT_ISALNUM = regex.compile(f"({other})"), r" \1 "
        self.AGGRESSIVE_HYPHEN_SPLIT = self._rule(rf"([{_ALNUM}])\-(?=[{_ALNUM}])", r"\1 @-@ ", "-")
        self.COMMA_SEPARATE_1 = self._rule(r"(\P{N}),", r"\1 , ", ",")
        self.COMMA_SEPARATE_2 = self._rule(r",(\P{N})", r" , \1", ",")
        self.COMMA_SEPARATE_3 = self._rule(r"(\p{N}),$", r"\1 , ", ",")
        self.ENGLISH_SPECIFIC_APOSTROPHE = [
            self._rule(rf"([^{_ALPHA}])'([^{_ALPHA}])", r"\1 ' \2", "'"),
            self._rule(rf"([^{_ALPHA}\p{{N}}])'([{_ALPHA}])", r"\1 ' \2", "'"),
            self._rule(rf"([{_ALPHA}])'([^{_ALPHA}])", r"\1 ' \2", "'"),
            self._rule(rf"([{_ALPHA}])'([{_ALPHA}])", r"\1 '\2", "'"),
            self._rule(r"(\p{N})'(s)", r"\1 '\2", "'"),
        ]
        self.FR_IT_SPECIFIC_APOSTROPHE = [
            self._rule(rf"([^{_ALPHA}])'([^{_ALPHA}])", r"\1 ' \2", "'"),
            self._rule(rf"([^{_ALPHA}])'([{_ALPHA}])", r"\1 ' \2", "'"),
            self._rule(rf"([{_ALPHA}])'([^{_ALPHA}])", r"\1 ' \2", "'"),
            self._rule(rf"([{_ALPHA}])'([{_ALPHA}])", r"\1' \2", "'"),
        ]
        self.TRAILING_DOT_APOSTROPHE = _Pattern(self.TRAILING_DOT_APOSTROPHE[0], ".'"), " . ' "
        self.MOSES_ESCAPE_XML_REGEXES = [
            (_Pattern(pattern, pattern.pattern[-1]), by) for pattern, by in self.MOSES_ESCAPE_XML_REGEXES
        ]

    @staticmethod
    def _rule(pattern: str, replacement: str, needs: str) -> Tuple[_Pattern, str]:
        return _Pattern(regex.compile(pattern), needs), replacement

    def islower(self, text: str) -> bool:
        return self._is_lower(text) is not None

    def isanyalpha(self, text: str) -> bool:
        return self._is_alpha(text) is not None

    def replace_multidots(self, text: str) -> str:
        return super().replace_multidots(text) if ".." in text else text

    def restore_multidots(self, text: str) -> str:
        return super().restore_multidots(text) if "DOTMULTI" in text else text

    def handles_nonbreaking_prefixes(self, text: str) -> str:
        text = text.strip()
        # Moses splits the final period of a line even after an abbreviation, sacremoses does not
        if text.endswith(".") and text[-2:-1] not in ("", " ", "."):
            text = text[:-1] + " ."
        # without a word that ends in a period, super() changes spaces only
        return super().handles_nonbreaking_prefixes(text) if ". " in text else text


class _Detokenizer(MosesDetokenizer):
    # Put before a token, so that sacremoses' rules do not match it: _FREE keeps the space before the token, _JOINED
    # removes it. Private-use characters, which no cleaned text has.
    _FREE, _JOINED = "\ue000", "\ue001"

    def __init__(self, language: str) -> None:
        super().__init__(lang=language)
        self.IS_CURRENCY_SYMBOL = regex.compile(r"^[\p{Sc}(\[{¿¡]+$")
        self.IS_ENGLISH_CONTRACTION = regex.compile(rf"^'[{_ALPHA}]")
        self.IS_FRENCH_CONRTACTION = regex.compile(rf"[{_ALPHA}]'$")  # sacremoses' spelling
        self.STARTS_WITH_ALPHA = regex.compile(rf"^[{_ALPHA}]")
        self.IS_FINNISH_ENDING = re.compile(
            # the third part is optional too, unlike in sacremoses
            "^({})({})?({})?$".format(
                *map("|".join, (self.FINNISH_MORPHSET_1, self.FINNISH_MORPHSET_2, self.FINNISH_MORPHSET_3))
            )
        )
        self._ends_with_alnum = regex.compile(rf"[{_ALNUM}]$").search

    def detokenize(self, tokens: Sequence[str], return_str: bool = True, unescape: bool = True) -> Any:
        text = self.AGGRESSIVE_HYPHEN_SPLIT[0].sub("-", f" {' '.join(tokens)} ")
        if "&" in text:
            text = self.unescape_xml(text)
        tokens = text.split()
        if self.lang == "en" and " '" in text:
            tokens = [self._FREE + token if self._stays(token, before) else token for before, token in _pairs(tokens)]
        elif self.lang == "fi" and ": " in text:
            tokens = [
                self._JOINED + token.lower() if self._joins(token, before) else token
                for before, token in _pairs(tokens)
            ]
        text = self.tokenize(tokens, return_str=True, unescape=False)
        return re.sub(f" ?{self._JOINED}|{self._FREE}", "", text)

    def _stays(self, token: str, before: str) -> bool:
        """Return whether Moses keeps the space before a token such as 's.

        Moses joins it to letters and digits only, sacremoses to any token.
        """
        return bool(self.IS_ENGLISH_CONTRACTION.search(token)) and not self._ends_with_alnum(before)

    def _joins(self, token: str, before: str) -> bool:
        """Return whether Moses joins a Finnish case ending to a colon, as in EU:ssa."""
        return before.endswith(":") and bool(self.IS_FINNISH_ENDING.search(token))


def _pairs(tokens: Sequence[str]) -> Iterator[Tuple[str, str]]:
    """Yield each token together with the one before it, as (before, token)."""
    return zip(["", *tokens], tokens)


class _Scripts:
    """Two scripts of a Moses checkout, run on blocks of lines."""

    def __init__(self, folder: Path, language: str) -> None:
        scripts = Path(folder) / "scripts" / "tokenizer"
        self._normalise: List[Any] = [scripts / "normalize-punctuation.perl", "-l", language]
        self._tokenise: List[Any] = [scripts / "tokenizer.perl", "-a", "-q", "-l", _moses_language(language)]
        for script, *_ in (self._normalise, self._tokenise):
            if not script.is_file():
                raise InputError(f"{script}: no such script; give the folder of a checkout of moses-smt/mosesdecoder")

    def normalise(self, lines: List[str]) -> List[str]:
        return self._run(self._normalise, lines)

    def tokenise(self, lines: List[str]) -> List[str]:
        return self._run(self._tokenise, lines)

    @staticmethod
    def _run(command: List[Any], lines: List[str]) -> List[str]:
        script = command[0]
        text = "".join(f"{line}\n" for line in lines)
        try:
            result = subprocess.run(
                ["perl", *map(str, command)], input=text.encode("utf-8"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise InputError(
                f"perl cannot be run ({error.strerror or error}); install it, or use no scripts"
            ) from error
        if result.returncode:
            said = result.stderr.decode("utf-8", "replace").strip().split("\n")[-1]
            raise InputError(f"{script} failed with exit status {result.returncode}: {said}")
        output = result.stdout.decode("utf-8", "replace").split("\n")[:-1]
        if len(output) != len(lines):
            raise InputError(f"{script} made {len(output)} lines of {len(lines)}; use a newer Moses, or no scripts")
        return output


@lru_cache(maxsize=None)
def _moses_language(language: str) -> str:
    return language if language in NonbreakingPrefixes().available_langs.values() else "en"


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
