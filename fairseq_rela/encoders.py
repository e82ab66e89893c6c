"""The preprocessing of ``rela prepare`` as fairseq's ``--tokenizer`` and ``--bpe``.

With them ``fairseq-interactive`` and the hub interface (``from_pretrained(...).translate([...])``) see the very
pieces that the model was trained on. fairseq's own ``moses`` and ``subword_nmt`` know neither the normalisation
nor the vocabulary threshold, and feed the model unknown words.
"""

from dataclasses import dataclass, field
from typing import Optional

from fairseq.data.encoders import register_bpe, register_tokenizer
from fairseq.dataclass import FairseqDataclass

from .data import bpe, text
from .errors import InputError


@dataclass
class RelaMosesConfig(FairseqDataclass):
    source_lang: Optional[str] = field(default=None, metadata={"help": "source language"})
    target_lang: Optional[str] = field(default=None, metadata={"help": "target language"})


@register_tokenizer("rela_moses", dataclass=RelaMosesConfig)
class RelaMosesTokenizer:
    """Normalisation and Moses tokenisation of the source, detokenisation of the target."""

    def __init__(self, cfg: RelaMosesConfig) -> None:
        if not cfg.source_lang or not cfg.target_lang:
            raise InputError("--tokenizer rela_moses needs --source-lang and --target-lang")
        self.preprocess = text.Preprocessor(cfg.source_lang)
        self.detokenise = text.Detokeniser(cfg.target_lang)

    def encode(self, x: str) -> str:
        return self.preprocess(x)

    def decode(self, x: str) -> str:
        return self.detokenise(x)


@dataclass
class RelaBPEConfig(FairseqDataclass):
    bpe_codes: Optional[str] = field(default=None, metadata={"help": "the file bpecodes of `rela prepare`"})
    bpe_vocabulary: Optional[str] = field(
        default=None, metadata={"help": "the source file vocab.LANG of `rela prepare`: pieces that may be produced"}
    )


@register_bpe("rela_bpe", dataclass=RelaBPEConfig)
class RelaBPE:
    """subword-nmt with the vocabulary of the source language, and its inverse."""

    def __init__(self, cfg: RelaBPEConfig) -> None:
        if not cfg.bpe_codes:
            raise InputError("--bpe rela_bpe needs --bpe-codes FILE, the file bpecodes of `rela prepare`")
        self.segmenter = bpe.load_segmenter(cfg.bpe_codes, cfg.bpe_vocabulary)

    def encode(self, x: str) -> str:
        return self.segmenter.process_line(x)

    def decode(self, x: str) -> str:
        return bpe.undo(x)
