"""Score translations with sacreBLEU against the raw reference."""

from typing import TYPE_CHECKING, Any, Dict, Optional, Sequence

import numpy

from ..data.settings import require_language
from ..errors import InputError
from ..files.plain_text import refuse_numbers, refuse_pieces
from ..text import bpe
from ..text.preprocess import TOKENISERS
from .translation import text_maker

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    target_lang: str,
    tokeniser: str = "moses",
    tokenised_references: Optional[Sequence[str]] = None,
    truecased: bool = False,
) -> Dict[str, Any]:
    """Return sacreBLEU (0 to 100) of model output against the raw reference.

    Args:
        hypotheses: BPE pieces, as the model returned them. This function joins the pieces, undoes truecasing and
            detokenises.
        references: raw, unprocessed text.
        target_lang: language code; selects the detokeniser and sacreBLEU's tokeniser (zh for Chinese, otherwise 13a).
        tokeniser: the tokeniser of the data, see :class:`fairseq_rela.text.preprocess.Detokeniser`.
        tokenised_references: tokens from the same preprocessing as the model's data, for tokenised BLEU.
        truecased: whether the data was truecased.

    Returns:
        ``bleu``, ``signature``, ``sentences``, and ``hypothesis_length`` and ``reference_length`` in tokens of
        sacreBLEU's tokeniser. With ``tokenised_references`` also ``tokenised_bleu``, as multi-bleu.perl computes it,
        and ``tokenised_signature``. Tokenised BLEU is not comparable across preprocessing.

    Raises:
        InputError: an unknown language or tokeniser; the numbers of lines differ; the reference is empty or not raw
            text; or the hypotheses are numbered lines of fairseq-generate or SentencePiece, byte-level or WordPiece
            pieces.
    """
    from sacrebleu.metrics import BLEU

    require_language("--target-lang", target_lang)
    if tokeniser not in TOKENISERS:
        raise InputError(f"--tokeniser {tokeniser}: choose one of {', '.join(TOKENISERS)}")
    _refuse_not_raw(references)
    refuse_numbers(hypotheses, "the hypotheses", "sort them by number and keep the last column")
    refuse_pieces(
        hypotheses, "the hypotheses", "give words: undo the pieces first, or let fairseq by --remove-bpe", False
    )
    _refuse_other_length(hypotheses, references, "reference")
    tokens = [bpe.undo(line) for line in hypotheses]
    metric = sacrebleu_metric(target_lang)
    result = metric.corpus_score(list(map(text_maker(target_lang, tokeniser, truecased), tokens)), [list(references)])
    scores = {
        "bleu": result.score,
        "signature": str(metric.get_signature()),
        "sentences": len(references),
        "hypothesis_length": result.sys_len,
        "reference_length": result.ref_len,
    }
    if tokenised_references is not None:
        words = "give its words, such as DATA/text/test.LANG"
        refuse_numbers(tokenised_references, "the tokenised reference", words)
        refuse_pieces(tokenised_references, "the tokenised reference", words)
        _refuse_other_length(hypotheses, tokenised_references, "tokenised reference")
        metric = BLEU(tokenize="none", smooth_method="none", force=True)
        scores["tokenised_bleu"] = metric.corpus_score(tokens, [list(tokenised_references)]).score
        scores["tokenised_signature"] = str(metric.get_signature())
    return scores


def sacrebleu_metric(target_lang: str) -> "BLEU":
    """Return sacreBLEU with its tokeniser for a target language: zh for Chinese, otherwise 13a."""
    from sacrebleu.metrics import BLEU

    return BLEU(tokenize="zh" if target_lang == "zh" else "13a")


def _refuse_not_raw(references: Sequence[str]) -> None:
    if not any(line.strip() for line in references):
        raise InputError("the reference has no text; is it the right file?")
    raw = "give the raw text, such as DATA/raw/test.LANG"
    # this matches most lines of BPE pieces, but only one in many thousands of raw text
    if 10 * sum(line.endswith("@@") or "@@ " in line for line in references) >= len(references):
        raise InputError(f"the reference holds BPE pieces; {raw}")
    refuse_numbers(references, "the reference", raw)
    refuse_pieces(references, "the reference", raw)


def _refuse_other_length(hypotheses: Sequence[str], references: Sequence[str], what: str) -> None:
    if len(hypotheses) != len(references):
        raise InputError(
            f"{len(hypotheses)} hypotheses, {len(references)} lines of {what}: the two must be of the same text"
        )


def suspect_order(hypotheses: Sequence[str], references: Sequence[str]) -> bool:
    """Return whether the hypotheses are probably in another order than the references.

    This is so if there are at least 100 and the correlation of their lengths in characters is below 0.3. In the
    right order the correlation is about 0.9, in another order about 0.
    """
    if len(hypotheses) < 100 or len(hypotheses) != len(references):
        return False
    sides = [[len(bpe.undo(line)) for line in lines] for lines in (hypotheses, references)]
    varies = min(map(numpy.std, sides)) > 0
    return bool(varies and numpy.corrcoef(*sides)[0, 1] < 0.3)
