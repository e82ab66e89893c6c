"""Choose the heads to remove."""

import random
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence

from ..errors import InputError
from .heads import Head

ORDERS = {
    "null": "the heads that are null at most queries first",
    "loss": "the heads without which the loss rises least first",
    "random": "heads drawn at random",
}


@dataclass(frozen=True)
class Choice:
    """Which heads to remove.

    Attributes:
        by: a key of :data:`ORDERS`.
        remove: share of all heads to remove, above 0 and at most 1; rounded to the next number of heads.
        null_rate: remove each head whose null rate is this or higher, above 0 and at most 1. Only by ``null``; by
            ``null`` without ``remove`` it is 1, the heads that are null on every query.
        seed: seed of the random order, which also decides between heads of equal value.

    Raises:
        InputError: an option has a bad value, or is missing, or does not go with another one.
    """

    by: str = "null"
    remove: Optional[float] = None
    null_rate: Optional[float] = None
    seed: int = 1

    def __post_init__(self) -> None:
        if self.by not in ORDERS:
            raise InputError(f"--by {self.by}: choose one of {', '.join(ORDERS)}")
        for name, value in (("remove", self.remove), ("null-rate", self.null_rate)):
            if value is not None and not 0 < value <= 1:
                raise InputError(f"--{name} {value}: give a share above 0 and at most 1, such as 0.25")
        if self.null_rate is not None and (self.remove is not None or self.by != "null"):
            raise InputError("--null-rate goes with --by null, and without --remove; leave the others out")
        if self.by != "null" and self.remove is None:
            raise InputError(f"--by {self.by} needs the share of heads to remove, such as --remove 0.25")

    @property
    def threshold(self) -> float:
        """The null rate from which heads are removed, unless a share of them is."""
        return 1.0 if self.null_rate is None else self.null_rate


def number_of(share: float, heads: int) -> int:
    """Return the number of heads that a share is, rounded half up."""
    return int(share * heads + 0.5)


def in_order(heads: Sequence[Head], by: str, seed: int, worth: Mapping[Head, float]) -> List[Head]:
    """Return the heads in the order in which they are removed.

    Args:
        heads: all heads.
        by: a key of :data:`ORDERS`.
        seed: see :class:`Choice`.
        worth: null rates by ``null``, rises of the loss by ``loss``; not used by ``random``.
    """
    order = random.Random(seed).sample(list(heads), len(heads))
    if by == "null":
        order.sort(key=lambda head: -worth[head])
    elif by == "loss":
        order.sort(key=lambda head: worth[head])
    return order


def choose(heads: Sequence[Head], choice: Choice, rates: Dict[Head, float], rises: Dict[Head, float]) -> List[Head]:
    """Return the heads to remove, in the order in which they go.

    Args:
        heads: all heads of the model.
        choice: the request.
        rates: null rates of all heads; empty if no head can be null.
        rises: rises of the loss without each head, if they are chosen by ``loss``.

    Raises:
        InputError: no head is to be removed, or the heads of the model are never null and are chosen by ``null``.
    """
    if choice.by == "null" and not rates:
        raise InputError(
            "--by null: the heads of this model are never null; give --by loss or --by random, and --remove"
        )
    order = in_order(heads, choice.by, choice.seed, rates if choice.by == "null" else rises)
    if choice.remove is not None:
        chosen = order[: number_of(choice.remove, len(heads))]
        if not chosen:
            raise InputError(f"--remove {choice.remove}: not even one of {len(heads)} heads; give a larger share")
        return chosen
    chosen = [head for head in order if rates[head] >= choice.threshold]
    if not chosen:
        raise InputError(
            f"no head has a null rate of {choice.threshold:g}; the highest is {rates[order[0]]:.4f}, of {order[0]}: "
            "give a lower --null-rate, or --remove"
        )
    return chosen
