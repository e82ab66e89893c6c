"""A Transformer language model (decoder only) with a choice of attention, for fairseq's task ``language_modeling``.

``--arch`` takes a key of :data:`fairseq_rela.models.lm_config.ARCHITECTURES` and ``--attention`` a name of
:mod:`fairseq_rela.variants`. All else is fairseq's ``transformer_lm``: its options, adaptive inputs and softmax, and
the names of its parameters, so that a checkpoint of ``transformer_lm`` can start the model.
"""

import logging
from typing import Any, Dict, Sequence

from fairseq import options
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer_lm import TransformerLanguageModel
from fairseq.modules import AdaptiveInput
from torch import nn

from ..errors import one_line_in_fairseq
from .config import nested_config
from .kept_layers import keep_layers, parse_layers
from .lm_config import (
    ARCHITECTURES,
    MODEL_NAME,
    TransformerLMRelaConfig,
    check_config,
    complete_config,
)
from .loading import misfit_in_one_line, with_start_values
from .scriptable import Scriptable
from .shared_options import apply_architecture, writable
from .transformer_rela import TransformerRelaDecoder, describe_attention

logger = logging.getLogger(__name__)


@register_model(MODEL_NAME, dataclass=TransformerLMRelaConfig)
class TransformerLMRelaModel(Scriptable, TransformerLanguageModel):
    """Decoder-only Transformer with the attention of ``--attention`` in every layer.

    It is the model ``transformer_lm_rela`` of fairseq; its config is
    :class:`fairseq_rela.models.lm_config.TransformerLMRelaConfig`.

    Attributes:
        kept_layers: the layers of a larger checkpoint to load, from ``--decoder-layers-to-keep``; empty for all.
    """

    kept_layers: Sequence[int] = ()
    scripted_as = TransformerLanguageModel

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "TransformerLMRelaModel":
        """Build the model, and record in ``cfg`` what it was built with, so that its checkpoints load again.

        Raises:
            InputError: an option has a bad value, see :func:`fairseq_rela.models.lm_config.check_config`.
        """
        arch = getattr(cfg, "_name", None) or getattr(cfg, "arch", None) or MODEL_NAME
        with one_line_in_fairseq():
            complete_config(cfg, arch, getattr(task, "args", None))
            check_config(cfg)
        nested = nested_config(cfg)
        nested.attention_sites = "decoder"
        dictionary = task.source_dictionary
        embedding = _adaptive_input(cfg, dictionary) if cfg.adaptive_input else None
        if embedding is None:
            embedding = cls.build_embedding(cfg, dictionary, cfg.decoder_input_dim)
        model = cls(TransformerRelaDecoder(nested, task.target_dictionary, embedding, no_encoder_attn=True))
        if cfg.decoder_layers_to_keep:
            model.kept_layers = parse_layers("decoder", cfg.decoder_layers_to_keep)
            with writable(cfg):
                cfg.decoder_layers_to_keep = None
        logger.info(f"attention: {describe_attention(model)}")
        return model

    def eval(self) -> "TransformerLMRelaModel":
        """Switch to evaluation, and return the model; after the hub has prepared it, fairseq's own returns None."""
        super().eval()
        return self

    def load_state_dict(self, state_dict: Dict[str, Any], strict: bool = True, model_cfg: Any = None, args: Any = None):
        """Load parameters, also those of a softmax model; attention parameters that these lack keep their start values.

        Args:
            state_dict: the parameters; of a model with more layers, only :attr:`kept_layers` are taken.
            strict: raise an error if parameters are missing or unknown.
            model_cfg, args: ignored; fairseq would prune the layers again.

        Raises:
            InputError: the parameters do not fit the model.
        """
        with one_line_in_fairseq():
            if self.kept_layers:
                state_dict = keep_layers(state_dict, "decoder", list(self.kept_layers))
        with misfit_in_one_line():
            return super().load_state_dict(with_start_values(self, state_dict), strict)


def _adaptive_input(cfg: Any, dictionary: Any) -> nn.Module:
    """Return fairseq's adaptive input embeddings (Baevski and Auli 2019) with the options of the config."""
    return AdaptiveInput(
        len(dictionary),
        dictionary.pad(),
        cfg.decoder_input_dim,
        cfg.adaptive_input_factor,
        cfg.decoder_embed_dim,
        options.eval_str_list(cfg.adaptive_input_cutoff, type=int),
        cfg.quant_noise_pq,
        cfg.quant_noise_pq_block_size,
    )


def _register_architecture(name: str) -> None:
    @register_model_architecture(MODEL_NAME, name)
    def architecture(cfg: Any) -> None:
        apply_architecture(cfg, name, ARCHITECTURES)


for _name in ARCHITECTURES:
    if _name != MODEL_NAME:  # register_model has registered this one
        _register_architecture(_name)
