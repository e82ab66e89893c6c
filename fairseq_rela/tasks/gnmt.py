"""Beam search with the GNMT length penalty (Wu et al. 2016), which the paper uses."""

from typing import Any, Dict, List

from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from torch import Tensor


def gnmt_length_penalty(length: int, alpha: float) -> float:
    r"""Return :math:`((5 + L) / 6)^\alpha` (Wu et al. 2016, eq. 14).

    Args:
        length: L, the tokens of a hypothesis, with the end of sentence.
        alpha: :math:`\alpha`; the paper uses 0.6.
    """
    return ((5.0 + length) / 6.0) ** alpha


class GNMTScoring:
    r"""Mixin for a sequence generator that scores hypotheses by :math:`\sum \log p \,/\, ((5 + L)/6)^\alpha`.

    The search is fairseq's and stops when ``beam`` hypotheses are finished. These are then scored again and sorted.

    Args:
        gnmt_lenpen: :math:`\alpha`.
    """

    def __init__(self, *args: Any, gnmt_lenpen: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gnmt_lenpen = gnmt_lenpen

    def _generate(self, *args: Any, **kwargs: Any) -> List[List[Dict[str, Tensor]]]:
        finalized = super()._generate(*args, **kwargs)
        for hypotheses in finalized:
            for hypothesis in hypotheses:
                penalty = gnmt_length_penalty(len(hypothesis["tokens"]), self.gnmt_lenpen)
                hypothesis["score"] = hypothesis["positional_scores"].sum() / penalty
            hypotheses.sort(key=lambda hypothesis: float(hypothesis["score"]), reverse=True)
        return finalized


class GNMTSequenceGenerator(GNMTScoring, SequenceGenerator):
    """fairseq's beam search with GNMT scoring."""


class GNMTSequenceGeneratorWithAlignment(SequenceGeneratorWithAlignment, GNMTSequenceGenerator):
    """fairseq's beam search with GNMT scoring and alignments.

    fairseq's class comes first, because it calls ``super()._generate``.
    """
