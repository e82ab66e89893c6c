"""The example sentences of the interactive view, with their weights in a compact form."""

import base64
from typing import Any, Dict, List, Sequence, Tuple

import numpy

from .characters import visible
from .groups import Group
from .run import Example

_BYTES = 8 << 20  # maximum number of bytes of weights in the page, over all runs
_FLOAT16 = (6e-8, 65504.0)  # the smallest and the largest positive float16


def pack_examples(groups: Sequence[Group]) -> Tuple[List[Dict[str, Any]], int]:
    """Return the sentences for the view by run, up to 8 MiB of weights, and the number of sentences left out."""
    named = [(group, run) for group in groups for run in group.runs if run.examples]
    shown: List[List[Dict[str, Any]]] = [[] for _ in named]
    room, left_out = _BYTES, 0
    for place in range(max([len(run.examples) for _, run in named] or [0])):
        for (_, run), sentences in zip(named, shown):
            if place < len(run.examples):
                packed = pack(run.examples[place])
                size = sum(len(layer["data"]) for layers in packed["weights"].values() for layer in layers)
                if size <= room:
                    room -= size
                    sentences.append(packed)
                else:
                    left_out += 1
    several = len(groups) > 1
    content = [
        {
            "name": run.label + (f", {group.task or '-'.join(group.languages)}" if several else ""),
            "group": groups.index(group),
            "sentences": sentences,
        }
        for (group, run), sentences in zip(named, shown)
        if sentences
    ]
    return content, left_out


def pack(example: Example) -> Dict[str, Any]:
    """Return an example with its weights as float16 in base64; no weight other than 0 becomes 0."""
    smallest, largest = _FLOAT16
    weights: Dict[str, Any] = {}
    for site, layers in example.weights.items():
        weights[site] = []
        for layer in layers:
            kept = numpy.where(layer == 0, 0.0, numpy.sign(layer) * numpy.clip(numpy.abs(layer), smallest, largest))
            data = base64.b64encode(kept.astype("<f2").tobytes()).decode()
            weights[site].append({"heads": len(layer), "data": data})
    source, target = (list(map(visible, pieces)) for pieces in (example.source, example.target))
    return {"id": example.number, "source": source, "target": target, "weights": weights}
