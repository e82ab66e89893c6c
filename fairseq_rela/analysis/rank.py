"""Rank the sentence pairs of raw text of any size by null rate or log-probability, and select pairs.

The files written are

- ``OUTPUT``: tab-separated, with a header and one line for each pair; the columns are
  :data:`fairseq_rela.analysis.score_file.COLUMNS`, lines count from 0, see
  :class:`fairseq_rela.analysis.pair_scorer.Score`;
- ``OUTPUT.rank.json``: the checksums and settings of the inputs;
- ``OUTPUT.SOURCE_LANG`` and ``OUTPUT.TARGET_LANG``: if the best pairs are kept, their unchanged lines in their original
  order, see :func:`fairseq_rela.analysis.orders.select_pairs`;
- ``OUTPUT.worst.LANG`` and ``OUTPUT.sample.LANG``: the same for the worst pairs and for a random sample;
- ``OUTPUT.selections.json``: with any selection, see
  :func:`fairseq_rela.analysis.selections.write_selections`.
"""

import os
import sys
from itertools import chain
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional

import numpy

from ..data.folder import DataFolder
from ..data.settings import refuse_unfit_pair
from ..errors import InputError
from ..files.locks import only_process
from ..files.outputs import refuse_overwriting
from ..files.records import sha256
from .detection import recommended_for
from .pair_scorer import PairScorer, load_scorer
from .score_file import FORMAT, ScoreFile
from .scoring import block_size, inspect, score_corpus
from .selections import Choice, describe, selection_files, selections_path, write_selections


class Ranking(NamedTuple):
    """The numbers of pairs in a ranked corpus and in its selections.

    Attributes:
        pairs: all pairs.
        unscored: pairs without a score.
        kept, worst, sampled: pairs in the three selections; None for a selection that was not requested.
    """

    pairs: int
    unscored: int
    kept: Optional[int] = None
    worst: Optional[int] = None
    sampled: Optional[int] = None


def rank(
    checkpoint: Path,
    data: Path,
    source: Path,
    target: Path,
    output: Path,
    workers: Optional[int] = None,
    device: Optional[str] = None,
    max_tokens: Optional[int] = None,
    **choice: Any,
) -> Ranking:
    """Score the pairs of lines of two raw text files in their order and in bounded memory, and select pairs by score.

    Selections take about 50 bytes of memory for each pair. Scores are first appended to ``OUTPUT.partial``. An
    interrupted run continues from this file and gives the same bytes; a complete ranking is not computed again.

    Args:
        checkpoint, data: a model and the data folder it was trained on, whose preparation steps the text goes through.
        source, target: text of the two languages of the data folder, plain or ``.gz``.
        output: file to write.
        workers: number of processes, by default one for each core; on a GPU, they only prepare the text.
        device: ``cpu`` or ``cuda``; by default a GPU if there is one.
        max_tokens: most padded pieces in a batch, by default that of ``configs/defaults/decoding.yaml``.
        choice: the fields of :class:`fairseq_rela.analysis.selections.Choice`.

    Raises:
        InputError: a file is missing or not UTF-8, the files differ in length, the model was trained on other data, an
            option has a bad value, or an output exists that was made from other inputs.
    """
    chosen = Choice(**choice)
    if workers is not None and workers < 1:
        raise InputError(f"--workers {workers}: give a number of at least 1")
    if not output.name:
        raise InputError(f"--output {output}: give the name of a file to write")
    folder = DataFolder(data)
    scorer = load_scorer(checkpoint, folder, device, max_tokens)
    refuse_unfit_pair(source, target, folder.settings)
    scores = ScoreFile(output)
    selected = chain(*selection_files(output, folder.languages).values())
    made = (output, scores.partial, scores.record, selections_path(output), *selected)
    refuse_overwriting((checkpoint, source, target), made)
    if not scorer.has_nulls:
        print(
            f"warning: {scorer.label} always attends to something, so all null rates are 0; only the "
            "log-probability distinguishes pairs",
            file=sys.stderr,
        )
    if scorer.encode.tokenised:
        print(f"the training text of {data} was given tokenised, so the text to rank must be tokenised too")
    with only_process(output, "ranked"):
        state = _state(checkpoint, folder, scorer, source, target)
        if scores.is_complete(state):
            print(f"{output}: already ranked from the same files by the same model")
        else:
            selections_path(output).unlink(missing_ok=True)  # of an earlier ranking with this name
            score_corpus(scorer, source, target, scores, state, workers or os.cpu_count() or 1)
        null_rates, log_probabilities = scores.read(state["pairs"])
        ranking = Ranking(state["pairs"], int(numpy.isnan(null_rates).sum()))
        if ranking.unscored:
            print(f"{output}: {ranking.unscored:,} of {ranking.pairs:,} pairs have no score; the last column says why")
        if chosen.is_empty:
            return ranking
        _recommend(checkpoint, chosen.by)
        columns = null_rates, log_probabilities
        record = write_selections(output, (source, target), folder.languages, scorer.label, columns, chosen)
    print(describe(record, output.parent))
    kept = {name: one["pairs"] for name, one in record["selections"].items()}
    return ranking._replace(kept=kept.get("best"), worst=kept.get("worst"), sampled=kept.get("sample"))


def _state(checkpoint: Path, data: DataFolder, scorer: PairScorer, source: Path, target: Path) -> Dict[str, Any]:
    """Return what the scores are made from, see :class:`fairseq_rela.analysis.score_file.ScoreFile`."""
    pairs, checksums = inspect(source, target)
    return {
        "format": FORMAT,
        "attention": scorer.label,
        "pairs": pairs,
        "inputs": {
            "checkpoint": sha256(checkpoint),
            "data_folder": {name: sha256(data.path / name) for name in data.text_files()},
            "settings": data.settings.record(),
            "source_text": checksums[0],
            "target_text": checksums[1],
        },
        # the last digits of the scores depend on which pairs are in a batch
        "batches": {
            "device": scorer.device.type,
            "block_size": block_size(scorer),
            "max_tokens": scorer.max_tokens,
        },
    }


def _recommend(checkpoint: Path, by: str) -> None:
    """Print the order that the model's own record of damaged pairs recommends, if it is not ``by``."""
    best = recommended_for(checkpoint)
    if best not in (None, by):
        where = checkpoint.parent / "rank.json"
        print(f"{where}: --by {best} detects damaged pairs better than --by {by}")
