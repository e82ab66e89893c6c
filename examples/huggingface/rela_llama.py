"""A Llama of Hugging Face's ``transformers`` with rectified linear attention; it needs transformers, not fairseq.

``AttentionInterface`` makes the function below an attention of any model, ``attn_implementation="rela"``, and
``AttentionMaskInterface`` chooses the masks that it gets. ReLA also needs a norm for each attention, with two vectors
of parameters, which :class:`RelaLlamaModel` adds. Train, save, load and generate as with any model of transformers.
"""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    initialization,
)
from transformers.masking_utils import sdpa_mask

from fairseq_rela.norms import GatedRMSNorm
from fairseq_rela.ops import gated_rms_norm, rela_attention


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Optional[Tensor],
    dropout: float = 0.0,
    scaling: Optional[float] = None,
    is_causal: Optional[bool] = None,
    **ignored: Any,
) -> Tuple[Tensor, None]:
    """Return the normed context, ``(B, T, H, d_h)``, and no weights, as transformers wants it.

    Args:
        module: the attention module of the model, with its norm as ``attn_norm``.
        query: ``(B, H, T, d_h)``.
        key, value: ``(B, H / groups, S, d_h)``, where ``groups`` query heads share a head of keys and values.
        attention_mask: ``(B, 1, T, S)``, True at keys that take part; None if all do, or all but the future.
        dropout: probability of dropping a weight, 0 in evaluation.
        scaling: factor of the scores.
        is_causal: None for the module's own; query i sees only the keys 0 to i, if there is no mask.
    """
    groups = getattr(module, "num_key_value_groups", 1)
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    length = query.size(2)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = causal and attention_mask is None and length > 1  # a single query is the last one, and sees all keys
    if causal:  # a cache of fixed size has empty places after the queries
        key, value = key[:, :, :length], value[:, :, :length]
    context = rela_attention(query, key, value, attention_mask, dropout, causal, scaling)
    context = context.transpose(1, 2)  # (B, T, H, d_h)
    normed = module.attn_norm(context.flatten(2), gated_rms_norm).view_as(context)
    return normed.to(query.dtype), None


AttentionInterface.register("rela", attend)
# boolean masks, True at keys that take part, as attn_mask of rela_attention; None where is_causal is enough
AttentionMaskInterface.register("rela", sdpa_mask)


class RelaLlamaModel(LlamaModel):
    """Llama's layers with ReLA-g: each attention module has a norm, ``attn_norm``, which :func:`attend` calls."""

    def __init__(self, config: LlamaConfig) -> None:
        config._attn_implementation = "rela"
        super().__init__(config)
        for layer in self.layers:
            layer.self_attn.attn_norm = GatedRMSNorm(layer.self_attn.o_proj.in_features)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Set start values; ``from_pretrained`` calls it for modules that the checkpoint lacks."""
        super()._init_weights(module)  # sets the gain to 1
        if isinstance(module, GatedRMSNorm):
            bound = (3 / module.gate.numel()) ** 0.5
            initialization.uniform_(module.gate, -bound, bound)


class RelaLlama(LlamaForCausalLM):
    """Llama with ReLA-g; ``RelaLlama.from_pretrained`` of a softmax Llama gives the norms their start values."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.model = RelaLlamaModel(config)
        self.post_init()


def main() -> None:
    """Train a tiny model to repeat a short sequence, save it, load it, and generate."""
    import tempfile

    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=16,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model = RelaLlama(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for update in range(150):
        half = torch.randint(3, 16, (32, 6))
        tokens = torch.cat([half, half], dim=1)  # the second half repeats the first
        labels = tokens.clone()
        labels[:, :6] = -100  # the first half cannot be predicted
        loss = model(tokens, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 50 == 49:
            print(f"update {update + 1}: loss {loss.item():.3f}")
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded = RelaLlama.from_pretrained(folder)
    prompt = torch.tensor([[5, 9, 3, 12, 7, 4]])
    print("prompt", prompt[0].tolist())
    output = loaded.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=6, do_sample=False)
    print("output", output[0, 6:].tolist())


if __name__ == "__main__":
    main()
