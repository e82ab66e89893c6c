"""The record of an analysis: its files, and its summary in the terminal.

``analysis.json`` holds

- ``format``, ``label``, ``checkpoint``, ``sha256``, ``data`` (checksums), ``subset``, ``sentences``, ``parameters``,
  ``attention``, ``attention_sites``, ``languages``, ``gold`` (file and checksum, or None);
- ``sparsity_target``: the share of exact zeros that ``--rela-sparsity-target`` asks for, only if there is one;
- ``level``: the level of ``sites`` and ``shuffled``;
- ``variance``: ``sample``, the kind of the variance of the null rates;
- ``sites``: sparsity, null rates and diversity by layer;
- ``shuffled``: null rates where each source has the target of another one (Figure 6, dashed lines), or None for a
  single sentence;
- ``words``: ``sites`` and ``shuffled`` at the level of words, only if both levels were measured;
- ``layer_attention``, and ``alignment``: AER by layer and head (Table 5), or None;
- ``task`` and ``positions``, only for a language model: ``language_modeling``, and ``sites`` by position in the
  context, see :class:`fairseq_rela.analysis.collectors.positions.Positions`; its ``sentences`` are contexts, its
  ``languages`` are none, and ``shuffled`` is None;
- ``wake``: the words and tags that wake each head.

Rates are shares from 0 to 1; layers count from 0. An analysis in memory also has ``examples`` and ``links`` (or None),
which are written to separate files.
"""

import json
from pathlib import Path
from typing import Any, Dict

from ..files.outputs import write_whole
from ..files.records import write_json
from .levels import levels_of
from .targets import describe_target

FORMAT = 1
_SEPARATE = ("examples", "links")  # entries that are written to separate files


def write(analysis: Dict[str, Any], folder: Path) -> None:
    """Write ``examples.json``, ``alignments/`` and, last, ``analysis.json`` with the rest of the analysis.

    The files of ``alignments/`` are in Pharaoh format, with words from 0 and one line for each sentence:
    ``{normal,shifted}.layerL.headH.pharaoh`` for a head, ``{normal,shifted}.layerL.mean.pharaoh`` for the mean over
    the heads of a layer. Alignment files of an earlier analysis that are not written again are removed.

    Args:
        analysis: result of :func:`fairseq_rela.analysis.analyze.analyze`.
        folder: output folder.
    """
    with write_whole(folder / "examples.json") as file:
        json.dump(analysis["examples"], file, ensure_ascii=False)
    links = analysis["links"] or {}
    for stale in (folder / "alignments").glob("*.layer*.pharaoh"):
        if stale.stem not in links:
            stale.unlink()
    for name, lines in links.items():
        with write_whole(folder / "alignments" / f"{name}.pharaoh") as file:
            file.writelines(line + "\n" for line in lines)
    write_json(folder / "analysis.json", {key: value for key, value in analysis.items() if key not in _SEPARATE})


def describe(analysis: Dict[str, Any]) -> str:
    """Return a summary with one line for each level and site, and the AER (Table 5) if there is a gold alignment."""
    what = "contexts" if "positions" in analysis else "sentences"
    lines = [f"{analysis['label']}: {analysis['sentences']:,} {what} of {analysis['subset']}"]
    for level, measured in levels_of(analysis).items():
        lines += [_describe_site(level, site, measured) for site in measured["sites"]]
    lines += filter(None, [describe_target(analysis)])
    lines += map(_describe_position, analysis.get("positions", ()))
    for kind in ("normal", "shifted") if analysis["alignment"] else ():
        rates = analysis["alignment"][kind]
        best = rates["best"]
        where = "mean of heads" if best["head"] is None else f"head {best['head']}"
        lines.append(
            f"AER {kind:8} AoL {100 * rates['aol']:.1f}   AoH {100 * rates['aoh']:.1f}   "
            f"best {100 * best['aer']:.1f}, layer {best['layer']}, {where} (from 0)"
        )
    return "\n".join(lines)


def _describe_position(part: Dict[str, Any]) -> str:
    entry = part["sites"]["decoder"]
    where = f"position {part['first']}" + (f" to {part['last']}" if part["last"] > part["first"] else "")
    return f"{where:24} exact zeros {entry['sparsity']:6.1%}   null queries {entry['null_rate']:6.1%}"


def _describe_site(level: str, site: str, measured: Dict[str, Any]) -> str:
    entry, shuffled = measured["sites"][site], measured["shuffled"]
    diversity = ", ".join(f"{value:.2f} at {tau}" for tau, value in entry["diversity"].items())
    with_shuffled = "" if shuffled is None else f"{shuffled['sites'][site]['null_rate']:.1%} with shuffled targets, "
    return (
        f"{level:6} {site:8} exact zeros {entry['sparsity']:6.1%}   null queries {entry['null_rate']:6.1%}, "
        f"{with_shuffled}{entry['layer_null_rate']:.1%} in the mean of heads   "
        f"head diversity {diversity}"
    )
