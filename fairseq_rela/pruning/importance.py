r"""What a head is worth on a subset of the data: how often it is null, and how much the loss rises without it.

The null rate of a head is the share of queries all of whose weights are exactly 0, with teacher forcing, as in
:mod:`fairseq_rela.analysis.sparsity`.

The loss is the cross-entropy of the references without label smoothing, in nats for each target piece, ends of
sentences included:

.. math:: L = -\frac{1}{\sum_n T_n} \sum_n \sum_{t=1}^{T_n} \log p(y_{n,t} \mid y_{n,<t}, x_n)

The rise of head h is :math:`L_{z_h = 0} - L`: its output :math:`z_h` is zero before the norm, all other heads stay
(ablation of one head, Michel et al. 2019, section 3.2). The first-order estimate of the same rise,
:math:`|\partial L / \partial \xi_h|` for an output :math:`\xi_h z_h` at :math:`\xi_h = 1` (Molchanov et al. 2017;
Michel et al. 2019, equation 2), needs one pass for all heads, but is wrong with ReLA: RMSNorm does not depend on the
scale of z, so where one head is awake alone its derivative is 0, and its removal leaves nothing.
"""

from typing import Any, Dict, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from tqdm import tqdm

from ..analysis.capture import capture, make_batches
from ..analysis.collectors.sites import Sparsity
from ..analysis.sentences import load_dataset
from .heads import Head, list_heads, zeroed


def null_rates(model: nn.Module, task: Any, subset: str) -> Dict[Head, float]:
    """Return the null rate of each head, from 0 to 1; a head without a rate below 1 is null on every query.

    Args:
        model: Transformer in evaluation mode.
        task: its task.
        subset: name of a subset of the data folder, such as ``valid``.

    Raises:
        InputError: as :func:`fairseq_rela.analysis.capture.capture`.
    """
    counts = Sparsity()
    for batch in capture(model, task, subset):
        counts.add(batch)
    rates = {key: count.null_rate_by_head for key, count in counts.counts.items()}
    return {head: rates[head.site, head.layer][head.number] for head in list_heads(model)}


def losses(
    model: nn.Module, task: Any, subset: str, heads: Sequence[Head] = (), max_tokens: Optional[int] = None
) -> Tuple[float, Dict[Head, float]]:
    """Return the loss of a model, and its rise without each of some heads.

    Each batch goes once through the model for each head; for heads of the decoder, the encoder is not computed again.

    Args:
        model, task, subset: as for :func:`null_rates`.
        heads: the heads to leave out, one at a time.
        max_tokens: as for :func:`fairseq_rela.analysis.capture.capture`.

    Raises:
        InputError: the subset does not exist, is empty or has no target side, or a sentence is too long for the model.
    """
    dataset = load_dataset(task, subset)
    batches = make_batches(model, task, dataset, subset, max_tokens)
    total, pieces, without = 0.0, 0, dict.fromkeys(heads, 0.0)
    progress = tqdm(total=len(batches) * (len(heads) + 1), desc=f"loss on {subset}", unit=" passes", disable=None)
    with torch.no_grad(), progress:
        for batch in batches:
            inputs, target = batch["net_input"], batch["target"]
            encoded = model.encoder(inputs["src_tokens"], src_lengths=inputs["src_lengths"])
            total += _loss(model, inputs, target, encoded, task)
            pieces += int((target != task.target_dictionary.pad()).sum())
            progress.update()
            for head in heads:
                with zeroed(model, head):
                    without[head] += _loss(model, inputs, target, None if head.site == "encoder" else encoded, task)
                progress.update()
    return total / pieces, {head: (loss - total) / pieces for head, loss in without.items()}


def _loss(model: nn.Module, inputs: Dict[str, Tensor], target: Tensor, encoded: Any, task: Any) -> float:
    """Return the sum of the losses of a batch's pieces; ``encoded`` is the encoder's output, None to compute it."""
    if encoded is None:
        encoded = model.encoder(inputs["src_tokens"], src_lengths=inputs["src_lengths"])
    output = model.decoder(inputs["prev_output_tokens"], encoder_out=encoded, src_lengths=inputs["src_lengths"])
    scores = model.get_normalized_probs(output, log_probs=True)  # (B, T, V)
    chosen = scores.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return -float(chosen.masked_fill(target == task.target_dictionary.pad(), 0.0).double().sum())
