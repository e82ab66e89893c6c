"""The preprocessing of ``rela prepare`` as fairseq's ``--tokenizer rela_moses`` and ``--bpe rela_bpe``.

With these, ``fairseq-interactive`` and the hub interface (``from_pretrained(...).translate([...])``) give the model
the same pieces as in training. fairseq's own ``moses`` and ``subword_nmt`` skip the normalisation and the vocabulary
threshold, so that the model gets unknown words.

fairseq imports this module at every start, so the constructors import the slower modules that they need.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from fairseq.data.encoders import register_bpe, register_tokenizer
from fairseq.dataclass import FairseqDataclass

from .errors import InputError, one_line_in_fairseq


@dataclass
class RelaMosesConfig(FairseqDataclass):
    """The options of ``--tokenizer rela_moses``."""

    prepared: Optional[str] = field(
        default=None, metadata={"help": "data folder of `rela prepare`, for text that was not prepared by default"}
    )
    source_lang: Optional[str] = field(default=None, metadata={"help": "source language"})
    target_lang: Optional[str] = field(default=None, metadata={"help": "target language"})


@register_tokenizer("rela_moses", dataclass=RelaMosesConfig)
class RelaMosesTokenizer:
    """Normalise and tokenise the source as ``rela prepare`` does (Moses), and detokenise the target.

    With ``--prepared DATA`` the settings of that data folder apply, for example the removal of Romanian diacritics.

    Raises:
        InputError: a language is missing, or ``--prepared`` is not a data folder of these languages.
    """

    def __init__(self, cfg: RelaMosesConfig) -> None:
        from .data.folder import DataFolder, make_preprocessor
        from .data.settings import Settings
        from .text.preprocess import Detokeniser

        with one_line_in_fairseq():
            if not cfg.source_lang or not cfg.target_lang:
                raise InputError("--tokenizer rela_moses needs --source-lang and --target-lang")
            settings = Settings(cfg.source_lang, cfg.target_lang, tokeniser="moses")
            prepared = getattr(cfg, "prepared", None)
            if prepared:
                settings = DataFolder(prepared).settings
                if settings.languages != (cfg.source_lang, cfg.target_lang):
                    pair = "-".join(settings.languages)
                    raise InputError(f"--prepared {prepared} is of {pair}, not {cfg.source_lang}-{cfg.target_lang}")
            self.preprocess = make_preprocessor(settings, settings.source_lang)
            self.detokenise = Detokeniser(settings.target_lang, settings.tokeniser)

    def encode(self, x: str) -> str:
        """Return the tokens of a line of raw source text."""
        return self.preprocess(x)

    def decode(self, x: str) -> str:
        """Return the text of a line of target tokens."""
        return self.detokenise(x)


@dataclass
class RelaBPEConfig(FairseqDataclass):
    """The options of ``--bpe rela_bpe``."""

    bpe_codes: Optional[str] = field(
        default=None, metadata={"help": "the file bpecodes in the data folder of `rela prepare`"}
    )


@register_bpe("rela_bpe", dataclass=RelaBPEConfig)
class RelaBPE:
    """Truecase the source and split it with subword-nmt's BPE; join the pieces of the target and undo truecasing.

    The models, the vocabulary and its threshold are those of the data folder that holds ``--bpe-codes``.

    Raises:
        InputError: ``--bpe-codes`` is missing or not in a data folder of ``rela prepare``; in ``encode``, a line has
            diacritics, which the data folder has removed.
    """

    def __init__(self, cfg: RelaBPEConfig) -> None:
        from .data.folder import DataFolder
        from .text import bpe, truecase
        from .text import preprocess as text

        with one_line_in_fairseq():
            if not cfg.bpe_codes:
                raise InputError("--bpe rela_bpe needs --bpe-codes DATA/bpecodes, in a data folder of `rela prepare`")
            data = DataFolder(Path(cfg.bpe_codes).parent)
            settings = data.settings
            self.recase = data.truecaser(settings.source_lang)
            self.segmenter = data.segmenter(settings.source_lang)
            self.undo = bpe.undo
            self.detruecase = truecase.detruecase if settings.has_case(settings.target_lang) else str
            self.has_removed_letters = text.has_diacritics if settings.remove_diacritics else lambda line: False

    def encode(self, x: str) -> str:
        """Return the pieces of a line of source tokens."""
        with one_line_in_fairseq():
            if self.has_removed_letters(x):
                raise InputError("the model was trained without diacritics; add --tokenizer rela_moses --prepared DATA")
            return self.segmenter.process_line(self.recase(x))

    def decode(self, x: str) -> str:
        """Return the tokens of a line of target pieces."""
        return self.detruecase(self.undo(x))
