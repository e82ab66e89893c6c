"""The preprocessing of ``rela prepare`` as fairseq's ``--tokenizer`` and ``--bpe``.

With them ``fairseq-interactive`` and the hub interface (``from_pretrained(...).translate([...])``) see the very
pieces that the model was trained on. fairseq's own ``moses`` and ``subword_nmt`` know neither the normalisation
nor the vocabulary threshold, and feed the model unknown words.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from fairseq.data.encoders import register_bpe, register_tokenizer
from fairseq.dataclass import FairseqDataclass

from .data import bpe, text
from .data.prepare import load_record, load_segmenter, settings_of
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
    bpe_codes: Optional[str] = field(
        default=None, metadata={"help": "the file bpecodes in the data folder of `rela prepare`"}
    )


@register_bpe("rela_bpe", dataclass=RelaBPEConfig)
class RelaBPE:
    """subword-nmt with the source vocabulary and threshold of the data folder, and its inverse."""

    def __init__(self, cfg: RelaBPEConfig) -> None:
        if not cfg.bpe_codes:
            raise InputError("--bpe rela_bpe needs --bpe-codes DATA/bpecodes, in a data folder of `rela prepare`")
        data = Path(cfg.bpe_codes).parent
        settings = settings_of(load_record(data))
        self.segmenter = load_segmenter(data, settings.source_lang, settings)

    def encode(self, x: str) -> str:
        return self.segmenter.process_line(x)

    def decode(self, x: str) -> str:
        return bpe.undo(x)
