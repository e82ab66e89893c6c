"""The options of the threshold of ReLU, which translation and language models share."""

from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass

from ..threshold import ThresholdOptions


@dataclass
class ThresholdFields(FairseqDataclass):
    """The threshold of ReLU; by default there is none, and a model has the parameters that it had without these."""

    rela_threshold: Optional[float] = field(
        default=None,
        metadata={
            "help": "weights are max(S - threshold, 0), so that a larger threshold gives more zeros; with "
            "rela_g_threshold, the start value of the learnt one"
        },
    )
    rela_threshold_warmup: int = field(
        default=0, metadata={"help": "updates over which the threshold rises linearly from 0"}
    )
    rela_sparsity_target: Optional[float] = field(
        default=None,
        metadata={
            "help": "share of exact zeros among the weights of each attention module, such as 0.7, to which training "
            "moves its threshold"
        },
    )


def threshold_options(cfg: Any) -> Optional[ThresholdOptions]:
    """Return the threshold that a config asks for, or None if it has none of the options.

    Args:
        cfg: the config of a model, flat or nested; checkpoints of earlier versions lack the options.
    """
    found = ThresholdOptions(
        getattr(cfg, "rela_threshold", None),
        getattr(cfg, "rela_threshold_warmup", None) or 0,
        getattr(cfg, "rela_sparsity_target", None),
    )
    return None if found == ThresholdOptions() else found
