"""PyTorch's own Transformer encoder with rectified linear attention; it needs torch and fairseq_rela, not fairseq.

Each layer keeps what torch gives it and gets another ``self_attn``. Train it as any torch module.
"""

from torch import nn

from fairseq_rela.nn import RectifiedLinearAttention


def rela_encoder(layers: int, embed_dim: int, num_heads: int, dropout: float = 0.1) -> nn.TransformerEncoder:
    """Return an encoder that takes ``(B, T, d)`` and a ``src_key_padding_mask``, ``(B, T)``, True at padding."""
    layer = nn.TransformerEncoderLayer(embed_dim, num_heads, 4 * embed_dim, dropout, batch_first=True)
    layer.self_attn = RectifiedLinearAttention(embed_dim, num_heads, dropout, batch_first=True)
    # nested tensors are for torch's own softmax kernel
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
