"""Guided alignment (Garg et al. 2019) for every attention variant, also where weights are not probabilities."""

from typing import Any, Dict, Tuple

from fairseq.criterions import CRITERION_REGISTRY
from fairseq.criterions import label_smoothed_cross_entropy_with_alignment as fairseqs
from torch import Tensor, nn

from .attention import VariantAttention
from .errors import InputError, one_line_in_fairseq
from .functional import as_probabilities

CRITERION_NAME = "label_smoothed_cross_entropy_with_alignment"
# Added to every weight of a row. The loss of a link is at most -log(FLOOR / sum of the row), and the gradient of a
# weight at most 1 / FLOOR.
FLOOR = 1e-3


def has_variant_cross_attention(model: nn.Module) -> bool:
    """Return whether the cross-attention of any layer is a variant of this plugin, not fairseq's own softmax."""
    return any(isinstance(m, VariantAttention) and m.encoder_decoder_attention for m in model.modules())


# the same name as fairseq's class: fairseq resumes training only if the checkpoint names the same criterion class
class LabelSmoothedCrossEntropyCriterionWithAlignment(fairseqs.LabelSmoothedCrossEntropyCriterionWithAlignment):
    r"""Compute fairseq's guided alignment loss (Garg et al. 2019) from weights of any sign and size.

    .. math:: L = L_{smoothed} + \lambda \sum_{(s,t)} \frac{-\log p_{ts}}{|\{s' : (s', t)\}|},
        \quad p_{ts} = \frac{\max(A_{ts}, 0) + \epsilon}{\sum_k (\max(A_{tk}, 0) + \epsilon)}

    The first sum is over the links (s, t) of the batch, the second over the source tokens k of the sentence without
    padding. :math:`A` is ``extra["attn"][0]``, ``(B, T, S)``: the weights of the last decoder layer's cross-attention
    before dropout, averaged over its heads. fairseq uses :math:`-\log A_{ts}`, which has no lower bound if rows do
    not sum to one (ReLU, GeLU), and is infinite if a weight is 0 (sparsemax, 1.5-entmax). Here rows sum to one, and
    :math:`\epsilon` = ``FLOOR`` keeps the loss and its gradients finite. The loss is never negative.

    A null row, which has no weight above 0, has no loss and no gradient: its word is aligned to nothing. If the
    weight of a link is 0 but other weights of its row are not, the gradient lowers those others. With sparsemax and
    1.5-entmax there is no gradient in this case, because their rows always sum to one.

    A model with softmax in cross-attention gets fairseq's own loss. The weights of links, ``--alignment-lambda``, the
    sample size and the logged values are fairseq's for all models. ``import fairseq_rela`` registers this class under
    fairseq's name.
    """

    def forward(self, model: nn.Module, sample: Dict[str, Any], reduce: bool = True) -> Tuple[Tensor, int, Dict]:
        """Return the loss, the sample size and the logged values, as fairseq's criterion does."""
        self._normalises = has_variant_cross_attention(model)
        return super().forward(model, sample, reduce)

    def compute_alignment_loss(self, sample: Dict[str, Any], net_output: Tuple[Tensor, Dict[str, Any]]) -> Any:
        r"""Return the second term of the loss, without :math:`\lambda`, or None if the batch has no link.

        Raises:
            InputError: the last decoder layer gives no attention weights.
        """
        output, extra = net_output
        weights = extra["attn"][0]
        if weights is None:
            with one_line_in_fairseq():
                raise InputError(
                    f"--criterion {CRITERION_NAME}: the last decoder layer gives no attention weights; "
                    "leave out --no-cross-attention, --cross-self-attention and --decoder-layerdrop"
                )
        if self._normalises:
            allowed = sample["net_input"]["src_tokens"] != self.task.source_dictionary.pad()
            probabilities = as_probabilities(weights, allowed.unsqueeze(1), FLOOR)
            null = probabilities.sum(dim=-1, keepdim=True) == 0
            extra = {**extra, "attn": [probabilities.masked_fill(null, 1.0)]}  # -log 1 is no loss
        return super().compute_alignment_loss(sample, (output, extra))


def register() -> None:
    """Replace fairseq's criterion in its registry, and keep its options and config.

    fairseq's ``register_criterion`` cannot do this, because it refuses a name that is taken.
    """
    CRITERION_REGISTRY[CRITERION_NAME] = LabelSmoothedCrossEntropyCriterionWithAlignment
