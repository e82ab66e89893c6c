"""Align the words of any two text files with a trained model."""

import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from torch import Tensor

from .. import checkpoints
from ..alignment import as_pharaoh, links_of
from ..data.folder import DataFolder
from ..data.pairs import SUBSET, binarised_pairs
from ..errors import InputError
from ..files.lines import read_parallel
from ..files.records import sha256
from .analyze import collect_links
from .best_head import agreement, association
from .goldset import GoldSet

FORMAT = 1
JUDGED = 2000  # number of sentence pairs, from the first one, on which the head is chosen
_FEW = 20  # with fewer pairs, the choice of the head can be due to chance
_HEAD = re.compile(r"(normal|shifted)\.layer[0-9]{1,4}\.(head[0-9]{1,4}|mean)")
_RULES = {
    "given": "named by --head",
    "agreement": "agrees best with the head {other} of the reverse model (F1 of their links)",
    "association": "links the words that occur together most often (mean Dice coefficient over the target words)",
}


class Alignment(NamedTuple):
    """The word alignments of a text.

    Attributes:
        lines: links of each sentence pair in Pharaoh format, with words from 0, source first.
        record: how the links were made, for JSON: ``head``, the ``rule`` that chose it and its ``value``, the numbers
            of pairs and links, the text and the models.
    """

    lines: List[str]
    record: Dict[str, Any]


def align(
    checkpoint: Path,
    source: Path,
    target: Path,
    data: Optional[Path] = None,
    *,
    tokenised: bool = False,
    reverse: Optional[Path] = None,
    reverse_data: Optional[Path] = None,
    head: Optional[str] = None,
) -> Alignment:
    """Link each target word to the source word with the largest weight in one cross-attention head.

    Words are separated by white space in the two files. The head can also be the mean over the heads of a layer. It is
    chosen on the first :data:`JUDGED` sentence pairs, without a gold alignment: with a model of the reverse direction,
    it is the head whose links agree best with those of a head of that model, see
    :func:`fairseq_rela.analysis.best_head.agreement`; else it is the head that links words that occur together, see
    :func:`fairseq_rela.analysis.best_head.association`.

    Args:
        checkpoint: a model.
        source, target: text files with one sentence on each line.
        data: the data folder of the model; by default the one that the checkpoint names.
        tokenised: see :func:`fairseq_rela.data.pairs.binarised_pairs`.
        reverse: a model from target to source.
        reverse_data: the data folder of ``reverse``; by default the one that its checkpoint names.
        head: name of the head to use, such as ``normal.layer1.head3`` or ``shifted.layer0.mean``; no head is chosen
            then.

    Raises:
        InputError: a file cannot be used, the text or the models do not fit together, or the head does not exist.
    """
    _refuse_bad_options(reverse, reverse_data, head)
    folder = _data_of(checkpoint, data, "--data")
    back = None if reverse is None else _data_of(reverse, reverse_data, "--reverse-data")
    if back is not None and back.languages != folder.languages[::-1]:
        pair = "-".join(folder.languages[::-1])
        raise InputError(f"{back} has the languages {back.pair}; give the data folder of a model for {pair}")
    names, forward, text = _positions(checkpoint, folder, source, target, tokenised)
    record: Dict[str, Any] = {"format": FORMAT, "checkpoint": str(checkpoint), "sha256": sha256(checkpoint)}
    if head is not None:
        if head not in names:
            raise InputError(f"--head {head}: no such head; choose from {', '.join(names)}")
        chosen, why = names.index(head), {"rule": "given"}
    elif reverse is not None and back is not None:
        others, backward, _ = _positions(reverse, back, target, source, tokenised)
        chosen, why = _by_agreement(forward[:JUDGED], others, backward[:JUDGED])
        record["reverse"] = {"checkpoint": str(reverse), "sha256": sha256(reverse)}
    else:
        chosen, why = _by_association(forward[:JUDGED], source, target)
    links = [links_of(positions[chosen].tolist()) for positions in forward]
    record.update(head=names[chosen], **why, pairs=len(links), links=sum(map(len, links)), text=text)
    return Alignment([as_pharaoh(line) for line in links], record)


def _refuse_bad_options(reverse: Optional[Path], reverse_data: Optional[Path], head: Optional[str]) -> None:
    if head is not None and not _HEAD.fullmatch(head):
        raise InputError(f"--head {head}: give a name such as normal.layer1.head3 or shifted.layer0.mean, from 0")
    if head is not None and reverse is not None:
        raise InputError("--head names a head, and --reverse chooses one; give only one of these options")
    if reverse_data is not None and reverse is None:
        raise InputError("--reverse-data needs --reverse; give it as well")


def describe(record: Dict[str, Any]) -> str:
    """Return a line with the numbers of links and pairs, the head and the rule that chose it."""
    rule = _RULES[record["rule"]].format(other=record.get("reverse_head"))
    value = f": {record['value']:.3f}" if "value" in record else ""
    return f"{record['links']:,} links of {record['pairs']:,} pairs by {record['head']}, which {rule}{value}"


def warn(record: Dict[str, Any]) -> List[str]:
    """Return warnings about the choice of the head, one line each."""
    if record["rule"] != "given" and record["pairs"] < _FEW:
        return [f"{record['pairs']} pairs are too few to choose the best head; give more, or name a head by --head"]
    return []


def measure_gold_set(checkpoint: Path, data: DataFolder, gold_set: GoldSet) -> Dict[str, Any]:
    """Measure the AER of a model on a gold set with its own text.

    The text goes through all preparation steps of the data folder, including tokenisation, so that the model gets the
    tokens it was trained on. The links count the words of the gold set.

    Args:
        checkpoint, data: a model and its data folder.
        gold_set: the gold set.

    Returns:
        ``alignment`` and ``links`` as :func:`fairseq_rela.analysis.analyze.analyze` returns them, ``gold`` from
        :attr:`GoldSet.record`, and ``gold_text``, the record of the text with the numbers of unknown words.

    Raises:
        InputError: a file cannot be used, or the links do not belong to the sentences.
    """
    data.refuse_model(checkpoint, checkpoints.load(checkpoint))
    with binarised_pairs(gold_set.source, gold_set.target, data) as pairs:
        expected = gold_set.read([(source.total, target.total) for source, target in pairs.words])
        links = collect_links(checkpoint, pairs.folder, SUBSET, pairs.words)
    return {
        "gold": gold_set.record,
        "alignment": links.error_rates(str(gold_set.links), expected),
        "links": links.result(),
        "gold_text": pairs.record,
    }


def _data_of(checkpoint: Path, data: Optional[Path], option: str) -> DataFolder:
    """Return the data folder of a model.

    Raises:
        InputError: none is given, and the one that the checkpoint names does not exist.
    """
    if data is not None:
        return DataFolder(data)
    state = checkpoints.load(checkpoint)
    try:
        folder = Path(str(state["cfg"]["task"]["data"]))
    except (KeyError, TypeError):
        folder = Path("unknown")
    if not DataFolder.is_prepared(folder):
        raise InputError(f"{checkpoint}: its data folder ({folder}) is not here; give {option} FOLDER")
    return DataFolder(folder)


def _positions(
    checkpoint: Path, data: DataFolder, source: Path, target: Path, tokenised: bool
) -> Tuple[List[str], List[Tensor], Dict[str, Any]]:
    """Return the names of all heads, the links of each pair, and the record of the text.

    The links of a pair are (heads, target words): the source word of each target word, -1 for none.
    """
    data.refuse_model(checkpoint, checkpoints.load(checkpoint))
    with binarised_pairs(source, target, data, tokenised) as pairs:
        links = collect_links(checkpoint, pairs.folder, SUBSET, pairs.words)
    return links.names, links.by_sentence, pairs.record


def _by_agreement(
    forward: Sequence[Tensor], others: Sequence[str], backward: Sequence[Tensor]
) -> Tuple[int, Dict[str, Any]]:
    shares = agreement(forward, backward)
    chosen, other = divmod(int(shares.argmax()), len(others))
    return chosen, {"rule": "agreement", "value": float(shares[chosen, other]), "reverse_head": others[other]}


def _by_association(forward: Sequence[Tensor], source: Path, target: Path) -> Tuple[int, Dict[str, Any]]:
    lines = [pair for _, pair in zip(forward, read_parallel(source, target))]
    means = association(forward, [(left.lower().split(), right.lower().split()) for left, right in lines])
    chosen = int(means.argmax())
    return chosen, {"rule": "association", "value": float(means[chosen])}
