#!/usr/bin/env python3
"""Measure how much faster `rela prepare` is with more processes: each stage, medians of several rounds.

    python scripts/prepare_speed.py                         # 200,000 generated pairs, 1 and 2 processes
    python scripts/prepare_speed.py --raw FOLDER            # its pairs, in train.en, train.de, valid.en, ...
    python scripts/prepare_speed.py --workers 1 8 --rounds 5

The generated words have lengths and frequencies as in real text. "raw to BPE" is the time of all stages before
binarising. To show what the cores can do, the script also runs as many preparations with one process each in parallel
as the largest number of processes. Ratios are medians of the ratios of the rounds, because a shared machine is slow in
some of them.
"""

import argparse
import contextlib
import io
import os
import platform
import random
import re
import shutil
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path
from typing import Dict, List, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairseq_rela.data.prepare import SPLITS, Corpus, Settings, prepare
from fairseq_rela.errors import InputError
from fairseq_rela.register import load_plugin

_STAGE = re.compile(r"(?P<stage>[^:]+(?:: [a-zA-Z, ]+)?): [\d,]+ \w+ in (?P<seconds>[\d.]+) s")
_SHORTEST = 0.5  # no ratio of shorter times in seconds, because stages report tenths
_TYPES = 60_000
_TOKENS = 25  # in a sentence, on average
BINARISE = "binarise"


def write_corpus(folder: Path, pairs: int, languages: Sequence[str]) -> None:
    """Write a corpus of random words with Zipf's frequencies, capitals, numbers and punctuation."""
    rng = random.Random(1)
    for lang in languages:
        types = [
            "".join(rng.choices("etaoinshrdlucmfwypvbgkjqxz", k=1 + round(rng.gammavariate(4, 1.7))))
            for _ in range(_TYPES)
        ]
        weights = list(accumulate(1 / (rank + 2.7) for rank in range(_TYPES)))
        for split, size in {"train": pairs, "valid": 3000, "test": 3000}.items():
            with open(folder / f"{split}.{lang}", "w", encoding="utf-8") as file:
                for _ in range(size):
                    words = rng.choices(types, cum_weights=weights, k=max(2, round(rng.gammavariate(4, _TOKENS / 4))))
                    words[0] = words[0].capitalize()
                    words[rng.randrange(len(words))] += rng.choice([",", ",", " (2014)", "'s", ': "No"', " 3.5 %"])
                    file.write(" ".join(words) + ".\n")


def time_stages(raw: Path, output: Path, languages: Sequence[str], workers: int) -> Dict[str, float]:
    """Return the seconds of each stage that prints its time, in order, then ``raw to BPE`` and ``all``."""
    corpus = Corpus({split: (raw / f"{split}.{languages[0]}", raw / f"{split}.{languages[1]}") for split in SPLITS})
    printed = io.StringIO()
    start = time.perf_counter()
    with contextlib.redirect_stdout(printed):
        prepare(corpus, Settings(*languages), output, workers)
    total = time.perf_counter() - start
    shutil.rmtree(output)
    stages = {m["stage"]: float(m["seconds"]) for m in map(_STAGE.match, printed.getvalue().splitlines()) if m}
    return {**stages, "raw to BPE": total - stages[BINARISE], "all": total}


def time_apart(raw: Path, outputs: Sequence[Path], languages: Sequence[str], workers: int) -> List[Dict[str, float]]:
    """Run :func:`time_stages` for all outputs in parallel, each in a new process that no earlier run affects."""
    with ProcessPoolExecutor(len(outputs), get_context("fork")) as fresh:
        runs = [fresh.submit(time_stages, raw, output, languages, workers) for output in outputs]
        return [run.result() for run in runs]


def median_ratio(seconds: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the ratios of the times of each round."""
    return statistics.median(one / other for one, other in zip(seconds, others))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raw", type=Path, metavar="FOLDER", help="raw text (default: generated)")
    parser.add_argument("--lines", type=int, default=200_000, help="pairs to generate (default: %(default)s)")
    parser.add_argument("--languages", nargs=2, default=["en", "de"], metavar="LANG", help="source and target")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="numbers of processes to compare")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: %(default)s)")
    arguments = parser.parse_args()
    load_plugin()  # so that the import of fairseq is not timed
    most = max(arguments.workers)
    times: List[List[Dict[str, float]]] = [[] for _ in arguments.workers]
    at_a_time: List[float] = []
    try:
        with tempfile.TemporaryDirectory(prefix="prepare_speed.") as folder:
            raw = arguments.raw
            if raw is None:
                raw = Path(folder) / "raw"
                raw.mkdir()
                write_corpus(raw, arguments.lines, arguments.languages)
            outputs = [Path(folder) / f"data{i}" for i in range(most)]
            for number in range(arguments.rounds):
                for workers, of_these in zip(arguments.workers, times):
                    of_these += time_apart(raw, outputs[:1], arguments.languages, workers)
                    print(f"round {number + 1}, --workers {workers}: {of_these[-1]['all']:.1f} s", flush=True)
                if 1 in arguments.workers:
                    runs = time_apart(raw, outputs, arguments.languages, 1)
                    at_a_time.append(statistics.mean(run["raw to BPE"] for run in runs))
    except InputError as error:
        print(f"prepare_speed: {error}", file=sys.stderr)
        return 2
    print(f"\nPython {platform.python_version()}, {os.cpu_count()} cores; medians of {arguments.rounds} rounds, in s")
    print(f"{'':32}" + "".join(f"{f'{workers} workers':>12}" for workers in arguments.workers) + f"{'ratio':>9}")
    for stage in times[0][0]:
        seconds = [[one[stage] for one in of_these] for of_these in times]
        medians = list(map(statistics.median, seconds))
        ratio = f"{median_ratio(seconds[0], seconds[-1]):.2f}" if min(seconds[-1]) >= _SHORTEST else "-"
        print(f"{stage:32}" + "".join(f"{value:12.2f}" for value in medians) + f"{ratio:>9}")
    if at_a_time:
        alone = [one["raw to BPE"] for one in times[arguments.workers.index(1)]]
        print(
            f"{most} runs in parallel with one process each: raw to BPE in {statistics.median(at_a_time):.2f} s; "
            f"so {most} processes that share nothing do {most * median_ratio(alone, at_a_time):.2f} times the work"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
