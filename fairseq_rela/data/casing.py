"""Truecase the tokens of a data folder with models that are learnt from its training text."""

from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Tuple

from ..corpora.spec import SPLITS
from ..files.lines import read_lines
from ..files.outputs import write_whole
from ..files.workers import blocks, worker_pool
from ..text import truecase
from .draft import BLOCK, Draft, progress
from .folder import TRUECASE_MODEL


def truecase_tokens(draft: Draft) -> None:
    """Learn ``truecase-model.LANG`` from the training tokens, and truecase the tokens under ``text/``."""
    for side, lang in enumerate(draft.settings.languages):
        if not draft.settings.has_case(lang):
            continue
        model = draft.path / f"{TRUECASE_MODEL}.{lang}"
        counts: Any = Counter()
        with worker_pool(draft.workers) as run, progress(f"train.{lang}: learn truecasing", "lines") as advance:
            for lines, found in run(_count_casings, blocks(read_lines(draft.text("train")[side]), 20 * BLOCK)):
                counts.update(found)
                advance(lines)
        truecase.write(model, counts)
        with worker_pool(draft.workers, _initialise, model) as run:
            for split in (split for split in SPLITS if split not in draft.settings.tokenised):
                text = draft.text(split)[side]
                with write_whole(text) as file, progress(f"{split}.{lang}: truecase", "lines") as advance:
                    for lines in run(_recase, blocks(read_lines(text), BLOCK)):
                        file.writelines(line + "\n" for line in lines)
                        advance(len(lines))


_worker: Dict[str, truecase.Truecaser] = {}


def _count_casings(lines: List[str]) -> Tuple[int, Any]:
    return len(lines), truecase.count_casings(lines)


def _initialise(model: Path) -> None:
    _worker["truecaser"] = truecase.Truecaser.load(model)


def _recase(lines: List[str]) -> List[str]:
    return list(map(_worker["truecaser"], lines))
