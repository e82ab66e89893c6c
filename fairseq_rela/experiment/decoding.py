"""The settings of the beam search, read from ``configs/``."""

import math
from typing import Any, NamedTuple, Optional

from ..errors import InputError
from ..files.configs import load_defaults, load_yaml


class Decoding(NamedTuple):
    """Settings of the beam search; :func:`load_decoding` returns the default ones.

    Attributes:
        beam: beam size.
        gnmt_lenpen: exponent of the GNMT length penalty; None uses fairseq's own penalty, ``lenpen``.
        lenpen: exponent of fairseq's length penalty; used only if ``gnmt_lenpen`` is None.
        max_len_a, max_len_b: an output has at most ``max_len_a * source_length + max_len_b`` pieces.
        max_tokens: maximum number of source pieces in a batch, padding included.
    """

    beam: int
    gnmt_lenpen: Optional[float]
    lenpen: float
    max_len_a: float
    max_len_b: int
    max_tokens: int

    def check(self) -> "Decoding":
        """Return these settings if all values are valid.

        Raises:
            InputError: a value has the wrong type or is out of range.
        """
        for name, value in self._asdict().items():
            whole = name in ("beam", "max_len_b", "max_tokens")
            number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
            if not (number and math.isfinite(value)) and not (value is None and name == "gnmt_lenpen"):
                what = "whole number" if whole else "number"
                raise InputError(f"--{name.replace('_', '-')} {value}: give a {what}")
        if self.beam < 1:
            raise InputError(f"--beam {self.beam}: give a number of at least 1")
        if self.max_tokens < 1:
            raise InputError(f"--max-tokens {self.max_tokens}: give a number of at least 1")
        if self.max_len_a < 0 or self.max_len_b < 0 or self.max_len_a + self.max_len_b == 0:
            raise InputError("--max-len-a and --max-len-b leave no room for an output; give larger numbers")
        return self


def load_decoding(**given: Any) -> Decoding:
    """Return the settings in ``configs/decoding/paper.yaml`` and ``configs/defaults/decoding.yaml``.

    Args:
        given: values of fields that replace those of the files. A ``lenpen`` without a ``gnmt_lenpen`` replaces both.

    Raises:
        InputError: a file is missing, or an entry is missing, unknown or invalid.
    """
    spec = load_yaml("decoding", "paper")
    try:
        values = {**spec["generation"], **spec["task"], **load_defaults("decoding"), **given}
        if "lenpen" in given and "gnmt_lenpen" not in given:
            values["gnmt_lenpen"] = None
        return Decoding(**values).check()
    except (KeyError, TypeError) as error:
        raise InputError(f"configs/decoding/paper.yaml: missing or unknown entry: {error}") from error
