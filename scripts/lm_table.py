#!/usr/bin/env python3
"""Train language models with softmax and ReLA-g on text of several corpora, and compare their perplexities.

    python scripts/lm_table.py --corpus multi30k=DATA --corpus news=DATA2 --lang en --output FOLDER --jobs 2
    python scripts/lm_table.py --output FOLDER       # only make the table again

DATA is a folder of `rela prepare`, whose pieces DATA/bpe/SPLIT.LANG are the text. Every attention and seed is trained
alike: transformer_lm_rela_tiny with shared embeddings, contexts of 128 pieces, 2,048 pieces an update. Perplexities
are those of fairseq-eval-lm for a piece, so compare them within a corpus only. A model that is there is not trained
again, so an interrupted run goes on. FOLDER/lm.json has the results and FOLDER/lm.md the table.
"""

import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tqdm import tqdm

from fairseq_rela.analysis.summaries import paired, summarise
from fairseq_rela.errors import InputError
from fairseq_rela.files.machine import processor, versions
from fairseq_rela.files.outputs import write_whole
from fairseq_rela.files.records import is_done, read_json, sha256, write_json
from fairseq_rela.study.text import mean_interval, mean_sd

ATTENTIONS = ("softmax", "rela_g")
CONTEXT = 128
USER_DIR = ("--user-dir", Path(__file__).resolve().parent.parent / "fairseq_rela")
SUBSETS = ("valid", "test")


class Run(NamedTuple):
    """One model of the table."""

    corpus: str
    attention: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.corpus}.{self.attention}.seed-{self.seed}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", action="append", default=[], metavar="NAME=DATA")
    parser.add_argument("--lang", default="en")
    parser.add_argument("--output", type=Path, required=True, help="folder for the models and the results")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--updates", type=int, default=1500)
    parser.add_argument("--jobs", type=int, default=1, help="number of models at a time, one thread each")
    options = parser.parse_args()
    try:
        unnamed = [entry for entry in options.corpus if "=" not in entry]
        if unnamed:
            raise InputError(f"--corpus {unnamed[0]}: give NAME=DATA")
        corpora = dict(entry.split("=", 1) for entry in options.corpus)
        runs = [
            Run(corpus, attention, seed) for seed in options.seeds for corpus in corpora for attention in ATTENTIONS
        ]
        for corpus, data in corpora.items():
            binarise(Path(data), options.lang, options.output / corpus)
        records = measure_all(runs, measure, options)
        write_json(options.output / "lm.json", {"runs": records})
        with write_whole(options.output / "lm.md") as file:
            file.write(markdown(records))
    except (InputError, subprocess.CalledProcessError) as error:
        print(f"lm_table: error: {error}", file=sys.stderr)
        return 2
    return 0


def binarise(data: Path, lang: str, folder: Path) -> None:
    """Binarise the pieces of one side with fairseq-preprocess, unless that is done."""
    if is_done(folder / "made_of.json", {"data": sha256(data / "prepare.json"), "lang": lang}):
        return
    files = [part for split in ("train", *SUBSETS) for part in (f"--{split}pref", data / "bpe" / f"{split}.{lang}")]
    fairseq("preprocess", "--only-source", *files, "--destdir", folder, "--workers", 2)
    write_json(folder / "made_of.json", {"made_of": {"data": sha256(data / "prepare.json"), "lang": lang}})


def measure_all(runs: Sequence[Run], measure: Callable[[Run, argparse.Namespace], Any], options: Any) -> List[Any]:
    """Measure the models that have no record yet, ``options.jobs`` at a time, and return all records.

    Args:
        runs: the models.
        measure: trains and measures one, and returns the content of its record.
        options: those of the command.
    """

    def complete(run: Run) -> None:
        record = options.output / "runs" / f"{run.name}.json"
        text = read_json(options.output / run.corpus / "made_of.json")["made_of"]
        made_of = {**text, "updates": options.updates}
        if not is_done(record, made_of):
            about = {"made_of": made_of, "processor": processor(), "versions": versions(["torch", "ve-fairseq"])}
            write_json(record, {**run._asdict(), **measure(run, options), **about})

    with ThreadPoolExecutor(options.jobs) as pool:
        for _ in tqdm(pool.map(complete, runs), total=len(runs), desc="language models", unit=" models", disable=None):
            pass
    return [read_json(path) for path in sorted((options.output / "runs").glob("*.json"))]


def train(run: Run, options: argparse.Namespace, context: int, max_tokens: int, warmup: int) -> Path:
    """Train a model on contexts of one length, and return its best checkpoint."""
    folder = options.output / run.name
    fairseq(
        *("train", options.output / run.corpus, *USER_DIR, "--task", "language_modeling"),
        *("--arch", "transformer_lm_rela_tiny", "--attention", run.attention, "--share-decoder-input-output-embed"),
        *("--tokens-per-sample", context, "--max-tokens", max_tokens, "--max-update", options.updates),
        *("--optimizer", "adam", "--adam-betas", "(0.9,0.98)", "--clip-norm", 1.0, "--lr", 0.002),
        *("--lr-scheduler", "inverse_sqrt", "--warmup-updates", warmup, "--no-epoch-checkpoints"),
        *("--seed", run.seed, "--save-dir", folder, "--log-format", "simple"),
    )
    return folder / "checkpoint_best.pt"


def perplexity(checkpoint: Path, data: Path, subset: str, context: int, max_tokens: int) -> float:
    """Return the perplexity of a subset, cut into contexts of one length."""
    size = ("--tokens-per-sample", context, "--max-tokens", max_tokens)
    printed = fairseq("eval_lm", data, *USER_DIR, "--path", checkpoint, *size, "--gen-subset", subset)
    return float(re.findall(r"Perplexity: ([\d.]+)", printed)[-1])


def measure(run: Run, options: argparse.Namespace) -> Dict[str, Any]:
    """Train one model, and return its perplexities, exact zeros and null rate."""
    folder, data = options.output / run.name, options.output / run.corpus
    checkpoint = train(run, options, CONTEXT, 16 * CONTEXT, warmup=100)
    found = {subset: perplexity(checkpoint, data, subset, CONTEXT, 16 * CONTEXT) for subset in SUBSETS}
    call("fairseq_rela.cli", "analyze", checkpoint, "--data", data, "--output", folder)
    site = read_json(folder / "analysis.json")["sites"]["decoder"]
    shares = {key: site[key] for key in ("sparsity", "null_rate")}
    return {"updates": options.updates, "perplexity": found, **shares}


def markdown(records: Sequence[Dict[str, Any]]) -> str:
    """Return the table: a row for each corpus and attention, and the difference of the attentions."""
    head = ["corpus", "attention", "seeds", *(f"perplexity, {subset}" for subset in SUBSETS), "exact zeros", "null"]
    lines = [head, [*("---" for _ in head[:2]), *("---:" for _ in head[2:])]]
    for corpus in dict.fromkeys(record["corpus"] for record in records):
        lines += rows(corpus, [record for record in records if record["corpus"] == corpus])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def rows(corpus: str, records: Sequence[Dict[str, Any]]) -> Iterator[List[str]]:
    """Yield the rows of one corpus."""
    by_seed = {
        name: {
            subset: {one["seed"]: one["perplexity"][subset] for one in records if one["attention"] == name}
            for subset in SUBSETS
        }
        for name in ATTENTIONS
    }
    for name in ATTENTIONS:
        runs = [one for one in records if one["attention"] == name]
        cells = [mean_sd(summarise(list(by_seed[name][subset].values())), 1) for subset in SUBSETS]
        shares = [mean_sd(summarise([one[key] for one in runs]), 1, 100) + " %" for key in ("sparsity", "null_rate")]
        yield [corpus, f"`{name}`", str(len(runs)), *cells, *shares]
    softmax, rela = (by_seed[name] for name in ATTENTIONS)
    differences = [paired(rela[subset], softmax[subset]) for subset in SUBSETS]
    yield [corpus, "difference", "", *(mean_interval(one, 1, sign=True) for one in differences), "", ""]


def fairseq(command: str, *arguments: Any) -> str:
    """Run a command of fairseq and return what it printed."""
    return call(f"fairseq_cli.{command}", *arguments)


def call(module: str, *arguments: Any) -> str:
    """Run a module as a program, with one thread; return its output, and print it if the program fails."""
    words = [sys.executable, "-W", "ignore", "-m", module, *(str(one) for one in arguments)]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    result = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", env=environment)
    if result.returncode != 0:
        print(result.stdout, file=sys.stderr)
        raise subprocess.CalledProcessError(result.returncode, words)
    return result.stdout


if __name__ == "__main__":
    sys.exit(main())
