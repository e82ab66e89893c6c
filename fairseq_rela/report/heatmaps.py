"""Heat maps of the heads that the user names, for each example sentence (``rela analyze --heat-map``)."""

import re
from pathlib import Path
from typing import Any, Dict, List, Sequence

from ..errors import InputError
from ..files.outputs import write_whole
from ..variants import SITES
from . import plots
from .head import AXES, Head
from .records import read_example

_NAME = re.compile(r"(encoder|decoder|cross)\.layer([0-9]{1,4})\.(?:head([0-9]{1,4})|mean)")
KINDS = ("png", "svg")


def parse_head(name: str) -> Head:
    """Parse the name of a head, such as ``cross.layer1.head3`` or ``encoder.layer0.mean``.

    Raises:
        InputError: the name has another form.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise InputError(
            f"--heat-map {name}: give SITE.layerL.headH or SITE.layerL.mean, from 0; the sites are {', '.join(SITES)}"
        )
    return Head(match.group(1), int(match.group(2)), None if match.group(3) is None else int(match.group(3)))


def draw(analysis: Dict[str, Any], heads: Sequence[Head]) -> Dict[str, bytes]:
    """Draw the weights of heads for each example sentence of an analysis, as PNG and SVG.

    Args:
        analysis: result of :func:`fairseq_rela.analysis.analyze.analyze`.
        heads: the heads to draw.

    Returns:
        file name, such as ``sentence3.cross.layer1.head0.png``, to content.

    Raises:
        InputError: the model does not have a layer or head.
    """
    for head in heads:
        _refuse_missing(head, analysis)
    files: Dict[str, bytes] = {}
    for sentence in analysis["examples"]["sentences"]:
        example = read_example(sentence)
        for head in heads:
            title = f"{analysis['label']}, sentence {example.number}: {head}"
            figure = plots.draw_heat_maps([head.heat_map(example, title)], *AXES[head.site])
            for kind in KINDS:
                files[f"sentence{example.number}.{head}.{kind}"] = plots.render(figure, kind)
    return files


def _refuse_missing(head: Head, analysis: Dict[str, Any]) -> None:
    """Check that the model has a head.

    Raises:
        InputError: it does not have the layer or the head.
    """
    layers: List[Dict[str, Any]] = analysis["sites"][head.site]["layers"]
    if head.layer >= len(layers):
        raise InputError(f"--heat-map {head}: no such layer; give a layer of {head.site} from 0 to {len(layers) - 1}")
    heads = layers[head.layer]["heads"]
    if head.head is not None and head.head >= heads:
        raise InputError(f"--heat-map {head}: no such head; give a head from 0 to {heads - 1}")


def write(files: Dict[str, bytes], folder: Path) -> None:
    """Write the files of :func:`draw` to ``folder``, and remove the heat maps of an earlier analysis."""
    for stale in folder.glob("sentence*.layer*.*"):
        if stale.name not in files:
            stale.unlink()
    for name, content in files.items():
        with write_whole(folder / name, "wb") as file:
            file.write(content)
