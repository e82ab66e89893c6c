"""fairseq's Transformer layers with the chosen attention at each site."""

from typing import Any, Optional, Tuple

from fairseq.models.transformer import TransformerConfig
from fairseq.modules import MultiheadAttention, transformer_layer
from torch import Tensor, nn

from ..attention import build_attention
from ..attention.observing import moving_threshold
from ..variants import BASELINE, parse_sites
from .scriptable import Scriptable
from .shared_options import threshold_options
from .start_values import start_as_released

# names of the zero-filled copies of all weights in the encoder layer of fairseq 0.12.2
FUSED_PARAMETERS = tuple(
    f"{layer}_{kind}" for layer in ("in_proj", "out_proj", "fc1", "fc2") for kind in ("weight", "bias")
)


class TransformerRelaEncoderLayer(Scriptable, transformer_layer.TransformerEncoderLayerBase):
    """fairseq's encoder layer with the chosen self-attention.

    fairseq 0.12.2 keeps zero-filled copies of all weights in each encoder layer. After a checkpoint is loaded, it
    uses them with torch's fused softmax kernel, even if ``self_attn`` is not softmax. This class removes the copies
    and always runs its own attention.
    """

    scripted_as = transformer_layer.TransformerEncoderLayerBase

    def __init__(self, cfg: TransformerConfig, return_fc: bool = False) -> None:
        super().__init__(cfg, return_fc=return_fc)
        for name in FUSED_PARAMETERS:
            self._parameters.pop(name, None)
        self.can_use_fastpath = False
        if cfg.rela_init == "paper":
            start_as_released(self)

    def build_self_attention(self, embed_dim: int, cfg: TransformerConfig) -> MultiheadAttention:
        """Return the self-attention of the layer; d is ``embed_dim``."""
        if not _is_variant("encoder", cfg):
            return super().build_self_attention(embed_dim, cfg)
        return _build_variant(embed_dim, cfg, cfg.encoder, self_attention=True)

    def _load_from_state_dict(self, *args) -> None:
        nn.Module._load_from_state_dict(self, *args)


class TransformerRelaDecoderLayer(Scriptable, transformer_layer.TransformerDecoderLayerBase):
    """fairseq's decoder layer with the chosen self-attention and cross-attention."""

    scripted_as = transformer_layer.TransformerDecoderLayerBase

    def __init__(self, cfg: TransformerConfig, no_encoder_attn: bool = False, **options: Any) -> None:
        super().__init__(cfg, no_encoder_attn, **options)
        if cfg.rela_init == "paper":
            start_as_released(self)

    def forward(
        self, x: Tensor, *args: Any, self_attn_padding_mask: Optional[Tensor] = None, **options: Any
    ) -> Tuple[Any, ...]:
        """Compute the layer as fairseq's does, and tell the attention modules which queries are padding."""
        modules = [m for m in (self.self_attn, self.encoder_attn) if moving_threshold(m) is not None]
        for module in modules:
            module.query_padding = self_attn_padding_mask
        try:
            return super().forward(x, *args, self_attn_padding_mask=self_attn_padding_mask, **options)
        finally:
            for module in modules:
                module.query_padding = None

    def build_self_attention(
        self, embed_dim: int, cfg: TransformerConfig, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> MultiheadAttention:
        """Return the self-attention of the layer; d is ``embed_dim``."""
        added = dict(add_bias_kv=add_bias_kv, add_zero_attn=add_zero_attn)
        if not _is_variant("decoder", cfg):
            return super().build_self_attention(embed_dim, cfg, **added)
        return _build_variant(embed_dim, cfg, cfg.decoder, self_attention=not cfg.cross_self_attention, **added)

    def build_encoder_attention(self, embed_dim: int, cfg: TransformerConfig) -> MultiheadAttention:
        """Return the cross-attention of the layer; d is ``embed_dim``."""
        if not _is_variant("cross", cfg):
            return super().build_encoder_attention(embed_dim, cfg)
        size = cfg.encoder.embed_dim
        return _build_variant(embed_dim, cfg, cfg.decoder, kdim=size, vdim=size, encoder_decoder_attention=True)

    def make_generation_fast_(self, need_attn: Optional[bool] = False, **options: Any) -> None:
        """Set whether the layer returns attention weights; fairseq's hub gives None, which TorchScript refuses."""
        super().make_generation_fast_(need_attn=bool(need_attn), **options)


def _is_variant(site: str, cfg: TransformerConfig) -> bool:
    """Return whether the attention of a site is a variant; otherwise fairseq's own method builds its softmax."""
    return cfg.attention != BASELINE and site in parse_sites(cfg.attention_sites)


def _build_variant(embed_dim: int, cfg: TransformerConfig, side: Any, **options: Any) -> MultiheadAttention:
    """Return an attention module; ``side`` is ``cfg.encoder`` or ``cfg.decoder``."""
    return build_attention(
        cfg.attention,
        embed_dim,
        side.attention_heads,
        dropout=cfg.attention_dropout,
        q_noise=cfg.quant_noise.pq,
        qn_block_size=cfg.quant_noise.pq_block_size,
        xformers_att_config=side.xformers_att_config,
        backend=cfg.rela_backend,
        threshold=threshold_options(cfg),
        **options,
    )
