"""Guided alignment for weights that are no probabilities: fairseq's criterion, for every variant of attention."""

from typing import Any, Dict, Tuple

from fairseq.criterions import CRITERION_REGISTRY
from fairseq.criterions import label_smoothed_cross_entropy_with_alignment as fairseqs
from torch import Tensor, nn

from .attention import VariantAttention
from .errors import InputError, one_line_in_fairseq
from .functional import as_probabilities

CRITERION_NAME = "label_smoothed_cross_entropy_with_alignment"
# added to every weight of a row: no loss of a link passes -log(FLOOR / row sum), no gradient of a weight 1 / FLOOR
FLOOR = 1e-3


def has_variant_cross_attention(model: nn.Module) -> bool:
    """Return whether cross-attention is a variant of this plugin, and not fairseq's own softmax."""
    return any(isinstance(m, VariantAttention) and m.encoder_decoder_attention for m in model.modules())


# fairseq resumes a training only where the criterion's class has the name that the checkpoint gives
class LabelSmoothedCrossEntropyCriterionWithAlignment(fairseqs.LabelSmoothedCrossEntropyCriterionWithAlignment):
    r"""Compute fairseq's guided alignment loss (Garg et al. 2019) from weights of any sign and size.

    .. math:: L = L_{smoothed} + \lambda \sum_{(s,t)} \frac{-\log p_{ts}}{|\{s' : (s', t)\}|},
        \quad p_{ts} = \frac{\max(A_{ts}, 0) + \epsilon}{\sum_k (\max(A_{tk}, 0) + \epsilon)}

    The sums are over the links of the batch and over the source tokens k of the sentence, padding left out.
    :math:`A` is ``extra["attn"][0]``, (B, T, S): the weights of the last decoder layer's cross-attention before
    dropout, averaged over its heads. fairseq takes :math:`-\log A_{ts}`, which has no lower bound where rows do
    not sum to one (ReLU, GeLU) and is infinite where a weight is 0 (sparsemax, 1.5-entmax). Here rows sum to one,
    and :math:`\epsilon` = ``FLOOR`` keeps the loss and its gradients finite. The loss is 0 or more.

    A null row, which has no weight above 0, has no loss and no gradient: it aligns its word to nothing. A link
    whose own weight is 0 lowers the other weights of its row, where they can change the sum of the row; sparsemax
    and 1.5-entmax, whose rows always sum to one, have no gradient there.

    A model with softmax in cross-attention gets fairseq's own loss. Weights of links, ``--alignment-lambda``, the
    sample size and the logged values are always fairseq's. ``import fairseq_rela`` registers this class under
    fairseq's name.
    """

    def forward(self, model: nn.Module, sample: Dict[str, Any], reduce: bool = True) -> Tuple[Tensor, int, Dict]:
        """See fairseq's criterion."""
        self._normalises = has_variant_cross_attention(model)
        return super().forward(model, sample, reduce)

    def compute_alignment_loss(self, sample: Dict[str, Any], net_output: Tuple[Tensor, Dict[str, Any]]) -> Any:
        """Return the sum over the links of the batch, or None if there is no link.

        Raises:
            InputError: the model gives no weights of its last layer.
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
    """Put the criterion in the place of fairseq's, whose options and config node stay.

    ``register_criterion`` refuses a name that is taken.
    """
    CRITERION_REGISTRY[CRITERION_NAME] = LabelSmoothedCrossEntropyCriterionWithAlignment
