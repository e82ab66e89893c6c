"""The results that a run lacks, and the commands that make them."""

import shlex
from typing import Iterator, Tuple

from . import paper
from .run import Run


def missing_results(run: Run) -> Iterator[Tuple[str, str]]:
    """Yield each result that a run does not have, and the command that makes it."""
    folder = shlex.quote(str(run.folder))
    if run.is_language_model:
        yield (
            "Cross-attention, which a language model does not have, and all that needs it or a translation (alignment, "
            "BLEU, shuffled targets, ranking) are left out; its perplexity is printed by",
            f'fairseq-eval-lm DATA --user-dir "$(rela user-dir)" --path {folder}/checkpoint_last.pt',
        )
        if "analysis" not in run.files:
            yield (
                "head diversity, positions in the context, what wakes a head (analysis.json)",
                f"rela analyze {folder}/checkpoint_last.pt --data DATA --output {folder}",
            )
        return
    data = run.folder.parent / "data"
    where = shlex.quote(str(data)) if data.is_dir() else "DATA"
    source, target = run.languages if len(run.languages) == 2 else ("SOURCE", "TARGET")
    analyze = f"rela analyze {folder}/average.pt --data {where} --output {folder}"
    if "train" not in run.files:
        yield (
            "its task and settings (train.json), without which its numbers are not compared with the paper's",
            f"rela train TASK --attention {run.attention or 'ATTENTION'} --data {where} --save-dir {folder}",
        )
    if "score" not in run.files:
        yield (
            "BLEU (score.json)",
            f"rela translate {where} --checkpoint {folder}/average.pt --output {folder}/test && "
            f"rela score --hypotheses {folder}/test.bpe --reference {where}/raw/test.{target} -t {target} "
            f"--output {folder}/score.json",
        )
    if "analysis" not in run.files:
        what = "head diversity, the hallucination test, what wakes a head (analysis.json)"
        yield (what if run.layers else f"sparsity, null rates, {what}", analyze)
    elif paper.LEVEL not in run.by_level:
        gold = " --gold GOLD" if run.alignment is not None else ""
        yield "sparsity, null rates and head diversity of words, as in the paper (analysis.json)", analyze + gold
    if "analysis" in run.files and run.alignment is None:
        yield "alignment error rates (Figure 4, Table 5), which need a gold word alignment", f"{analyze} --gold GOLD"
    if not run.examples:
        yield "heat maps and single sentences (examples.json)", analyze
    if "rank" not in run.files:
        yield (
            "how well damaged pairs show (rank.json)",
            f"rela rank {folder}/average.pt HELDOUT.{source} HELDOUT.{target} --data {where} --output "
            f"{folder}/rank.json --damage",
        )
