"""Moses' punctuation, tokens and text: sacremoses with corrections, or the Perl scripts of a Moses checkout.

The corrections make the output of sacremoses equal to that of the scripts. ``MOSES=<checkout> pytest
tests/test_text.py`` compares both.
"""

import re
import subprocess
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Callable, Iterator, List, Sequence, Tuple

import regex
from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
from sacremoses.corpus import NonbreakingPrefixes

from ..errors import InputError

_TESTED = ("0.1", "0.2")  # series of sacremoses

# as in Unicode and Perl; sacremoses' own lists are older and lack Chinese and other scripts
_ALPHA = r"\p{Alphabetic}"
_ALNUM = r"\p{Alphabetic}\p{Nd}"


def _refuse_untested() -> None:
    """Raise if this version of sacremoses has not been compared with Moses.

    This is an error, not a warning, because other tokens make other data, which is noticed only after the training.

    Raises:
        InputError: the version is not one of the tested series.
    """
    version = metadata.version("sacremoses")
    if ".".join(version.split(".")[:2]) not in _TESTED:
        raise InputError(
            f"sacremoses {version}: only the tokens of {' and '.join(_TESTED)} have been compared with those of Moses; "
            "run: pip install 'sacremoses>=0.1,<0.3'"
        )


class _Pattern:
    """A compiled pattern that is tried only on texts with ``needs``, a string that every match contains."""

    def __init__(self, pattern: Any, needs: str) -> None:
        self._sub: Callable[[str, str], str] = pattern.sub
        self._needs = needs

    def sub(self, replacement: str, text: str) -> str:
        return self._sub(replacement, text) if self._needs in text else text


class Normaliser(MosesPunctNormalizer):
    """Normalise punctuation as normalize-punctuation.perl does.

    Args:
        language: ISO 639-1 code.
    """

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
        """Return a line with the punctuation of Moses."""
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


class Tokenizer(MosesTokenizer):
    """Tokenise as tokenizer.perl does.

    Args:
        language: ISO 639-1 code.

    Raises:
        InputError: this version of sacremoses has not been compared with Moses.
    """

    def __init__(self, language: str) -> None:
        _refuse_untested()
        super().__init__(lang=moses_language(language))
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

    # sacremoses calls these two; its own versions use its lists of letters

    def islower(self, text: str) -> bool:
        """Return whether the first character is a lower-case letter."""
        return self._is_lower(text) is not None

    def isanyalpha(self, text: str) -> bool:
        """Return whether any character is a letter."""
        return self._is_alpha(text) is not None

    def handles_nonbreaking_prefixes(self, text: str) -> str:
        """Return the text with the final period of each word split off, except after an abbreviation."""
        text = text.strip()
        # Moses splits the final period of a line even after an abbreviation, sacremoses does not
        if text.endswith(".") and text[-2:-1] not in ("", " ", "."):
            text = text[:-1] + " ."
        # without a word that ends in a period, super() changes spaces only
        return super().handles_nonbreaking_prefixes(text) if ". " in text else text


class Detokenizer(MosesDetokenizer):
    """Detokenise as detokenizer.perl does.

    Args:
        language: ISO 639-1 code.

    Raises:
        InputError: this version of sacremoses has not been compared with Moses.
    """

    # Put before a token, so that sacremoses' rules do not match it: _FREE keeps the space before the token, _JOINED
    # removes it. Private-use characters, which no cleaned text has.
    _FREE, _JOINED = "\ue000", "\ue001"

    def __init__(self, language: str) -> None:
        _refuse_untested()
        super().__init__(lang=moses_language(language))
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
        """Return the text of a line of tokens; the other arguments are those of sacremoses and are ignored."""
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


class Scripts:
    """The normaliser and the tokeniser of a Moses checkout, run on blocks of lines.

    Args:
        folder: the checkout.
        language: ISO 639-1 code.

    Raises:
        InputError: a script is missing, or fails when it is run.
    """

    def __init__(self, folder: Path, language: str) -> None:
        scripts = Path(folder) / "scripts" / "tokenizer"
        self._normalise: List[Any] = [scripts / "normalize-punctuation.perl", "-l", language]
        self._tokenise: List[Any] = [scripts / "tokenizer.perl", "-a", "-q", "-l", moses_language(language)]
        for script, *_ in (self._normalise, self._tokenise):
            if not script.is_file():
                raise InputError(f"{script}: no such script; give the folder of a checkout of moses-smt/mosesdecoder")

    def normalise(self, lines: List[str]) -> List[str]:
        """Return the lines after normalize-punctuation.perl."""
        return self._run(self._normalise, lines)

    def tokenise(self, lines: List[str]) -> List[str]:
        """Return the lines after ``tokenizer.perl -a``."""
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
                f"perl cannot be run ({error.strerror or error}); install it, or leave --moses out"
            ) from error
        if result.returncode:
            last_line = result.stderr.decode("utf-8", "replace").strip().split("\n")[-1]
            raise InputError(f"{script} failed with exit status {result.returncode}: {last_line}")
        output = result.stdout.decode("utf-8", "replace").split("\n")[:-1]
        if len(output) != len(lines):
            raise InputError(
                f"{script} made {len(output)} lines of {len(lines)}; use a newer Moses, or leave --moses out"
            )
        return output


@lru_cache(maxsize=None)
def moses_language(language: str) -> str:
    """Return the language whose rules Moses applies: English if it does not know the language."""
    return language if language in NonbreakingPrefixes().available_langs.values() else "en"
