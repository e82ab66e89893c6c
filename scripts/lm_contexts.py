#!/usr/bin/env python3
"""Train language models with softmax and ReLA-g on long contexts, and compare them by the length of a context.

    rela bench --parts lm --quick --threads 1 --name cpu-quick-lm
    python scripts/lm_contexts.py --data DATA --lang en --bench benchmarks/cpu-quick-lm --output FOLDER --jobs 2
    python scripts/lm_contexts.py --bench benchmarks/cpu-quick-lm --output FOLDER       # only make the table again

DATA is a folder of `rela prepare`, whose pieces DATA/bpe/SPLIT.LANG are the text. Every model is
transformer_lm_rela_tiny with shared embeddings, trained on contexts of 8,192 pieces, one an update. Its test set is
then cut into contexts of 256 to 8,192 pieces; perplexities are those of fairseq-eval-lm for a piece. A model that is
there is not trained again, so an interrupted run goes on. FOLDER/contexts.json has the results, contexts.md the table,
and contexts.png perplexity, time and memory, the last two from the benchmark.
"""

import argparse
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lm_table import ATTENTIONS, Run, binarise, measure_all, perplexity, train

from fairseq_rela.analysis.summaries import paired, summarise
from fairseq_rela.errors import InputError
from fairseq_rela.files.outputs import write_whole
from fairseq_rela.files.records import read_json, write_json
from fairseq_rela.report import plots
from fairseq_rela.report.paper import NAMES
from fairseq_rela.study.tables import markdown as table
from fairseq_rela.study.text import mean_interval, mean_sd

CONTEXTS = (256, 512, 1024, 2048, 4096, 8192)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of `rela prepare`")
    parser.add_argument("--lang", default="en")
    parser.add_argument("--bench", type=Path, required=True, help="folder that `rela bench --parts lm` wrote")
    parser.add_argument("--output", type=Path, required=True, help="folder for the models and the results")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--updates", type=int, default=300, help="(default: 300)")
    parser.add_argument("--jobs", type=int, default=1, help="number of models at a time, one thread each")
    options = parser.parse_args()
    try:
        cells = read_json(options.bench / "benchmark.json").get("lm")
        if not cells:
            raise InputError(f"{options.bench}: has no language models; give a folder of `rela bench --parts lm`")
        runs = []
        if options.data is not None:
            binarise(options.data, options.lang, options.output / "text")
            runs = [Run("text", attention, seed) for seed in options.seeds for attention in ATTENTIONS]
        records = measure_all(runs, measure, options)
        if not records:
            raise InputError(f"{options.output}: no measurements; give --data")
        write_json(options.output / "contexts.json", {"runs": records})
        with write_whole(options.output / "contexts.md") as file:
            file.write(markdown(records, cells))
        with write_whole(options.output / "contexts.png", "wb") as file:
            file.write(draw(records, cells))
    except (InputError, subprocess.CalledProcessError) as error:
        print(f"lm_contexts: error: {error}", file=sys.stderr)
        return 2
    return 0


def measure(run: Run, options: argparse.Namespace) -> Dict[str, Any]:
    """Train one model on the longest contexts, and return the perplexity of the test set at each length."""
    longest, data = max(CONTEXTS), options.output / run.corpus
    checkpoint = train(run, options, longest, longest, warmup=50)
    return {"perplexity": {str(one): perplexity(checkpoint, data, "test", one, longest) for one in CONTEXTS}}


def perplexities(records: Sequence[Dict[str, Any]], name: str, context: int) -> Dict[int, float]:
    """Return the perplexity of the model of each seed with an attention, on contexts of one length."""
    return {one["seed"]: one["perplexity"][str(context)] for one in records if one["attention"] == name}


def benched(cells: Sequence[Dict[str, Any]], key: str, name: str, context: int) -> Optional[float]:
    """Return a number of a benchmark at one length, or None if it was not measured."""
    cell = next((cell for cell in cells if cell["length"] == context), {})
    found = cell.get(key, {}).get(name)
    return found["median"] if isinstance(found, dict) else found


def markdown(records: Sequence[Dict[str, Any]], cells: Sequence[Dict[str, Any]]) -> str:
    """Return the table, with a column for each length of a context.

    Args:
        records: the models.
        cells: the part ``lm`` of a benchmark.
    """

    def row(name: str, key: str, attention: str, digits: int, scale: float = 1.0) -> List[str]:
        values = [benched(cells, key, attention, context) for context in CONTEXTS]
        return [name, *("" if value is None else f"{scale * value:.{digits}f}" for value in values)]

    found = {name: [perplexities(records, name, context) for context in CONTEXTS] for name in ATTENTIONS}
    rows = [
        [f"perplexity, {NAMES[name]}", *(mean_sd(summarise([*values.values()]), 1) for values in found[name])]
        for name in ATTENTIONS
    ]
    differences = [paired(rela, softmax) for softmax, rela in zip(*found.values())]
    rows.append(["difference", *(mean_interval(one, 1, sign=True) for one in differences)])
    rows.append(row("time of ReLA-g, divided by softmax", "ratio", "rela_g", 2))
    rows += [row(f"peak memory, {NAMES[name]}, MiB", "peak_bytes", name, 0, 2.0**-20) for name in ATTENTIONS]
    return table(["length of a context", *(f"{context:,}" for context in CONTEXTS)], rows, 1) + "\n"


def draw(records: Sequence[Dict[str, Any]], cells: Sequence[Dict[str, Any]]) -> bytes:
    """Return a PNG file with perplexity, time and memory by the length of a context; arguments as for the table."""

    def mean(name: str, context: int) -> Optional[float]:
        found = perplexities(records, name, context)
        return fmean(found.values()) if found else None

    def memory(name: str, context: int) -> Optional[float]:
        found = benched(cells, "peak_bytes", name, context)
        return None if found is None else found / 2**20

    values: Dict[Tuple[str, str], Callable[[str, int], Optional[float]]] = {
        ("perplexity of the test set", "for a piece"): mean,
        ("training update", "seconds"): partial(benched, cells, "seconds"),
        ("peak memory of an update", "MiB"): memory,
    }
    panels = [
        plots.Panel(
            *title,
            [plots.Line(NAMES[name], [value(name, context) for context in CONTEXTS]) for name in ATTENTIONS],
            log=title[1] == "seconds",
            places=list(CONTEXTS),
        )
        for title, value in values.items()
    ]
    styles = plots.choose_styles([(NAMES[name], name) for name in ATTENTIONS])
    figure = plots.draw_layer_lines([[panel] for panel in panels], styles, axis_name="length of a context")
    return plots.render(figure, "png")


if __name__ == "__main__":
    sys.exit(main())
