#!/usr/bin/env python3
"""Choose the length penalty of each model on the dev set, and compare pairs of models with their own penalties.

    python scripts/length_penalty.py --data experiments/multi30k_en_de/data --models experiments/multi30k_en_de \\
        --pair softmax rela_g --seeds 1 2 --output FOLDER
    python scripts/length_penalty.py --output FOLDER       # only make the table again

The models are MODELS/LABEL.seed-SEED/average.pt, as `rela study` leaves them, for both labels of each --pair and all
--seeds. Every model translates the dev set with every penalty (the exponent of the GNMT penalty), and the test set
with the study's penalty and with the one that has the highest BLEU on the dev set. A model that has been measured is
not measured again. FOLDER/length_penalty.json has the results and FOLDER/length_penalty.md the table.
"""

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tqdm import tqdm

from fairseq_rela.analysis.summaries import paired, summarise
from fairseq_rela.data.folder import DataFolder
from fairseq_rela.errors import InputError
from fairseq_rela.experiment.decoding import load_decoding
from fairseq_rela.experiment.scoring import score
from fairseq_rela.experiment.translation import translate
from fairseq_rela.files.lines import read_lines
from fairseq_rela.files.machine import processor, versions
from fairseq_rela.files.outputs import write_whole
from fairseq_rela.files.records import is_done, read_json, sha256, write_json
from fairseq_rela.study.tables import markdown as table
from fairseq_rela.study.text import mean_interval, mean_sd

PENALTIES = (0.0, 0.6, 1.0, 1.5, 2.0, 3.0)
Record = Dict[str, Any]


class Run(NamedTuple):
    """One model: the row of a study and the seed."""

    label: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.label}.seed-{self.seed}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="data folder of the models")
    parser.add_argument("--models", type=Path, help="folder of the runs (default: the folder of DATA)")
    parser.add_argument(
        "--pair",
        nargs=2,
        action="append",
        default=[],
        metavar=("LABEL", "OTHER"),
        help="two rows; the difference is OTHER less LABEL; may be repeated",
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--output", type=Path, required=True, help="folder for the translations and the results")
    parser.add_argument("--jobs", type=int, default=1, help="number of models at a time, one thread each")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    results = options.output / "length_penalty.json"
    try:
        if options.data is not None:
            write_json(results, {"pairs": options.pair, "runs": measure_all(options)})
        if not results.is_file():
            raise InputError(f"{options.output}: no measurements; give --data and --pair")
        found = read_json(results)
        with write_whole(options.output / "length_penalty.md") as file:
            file.write(markdown(found["pairs"], found["runs"]))
    except InputError as error:
        print(f"length_penalty: error: {error}", file=sys.stderr)
        return 2
    return 0


def measure_all(options: argparse.Namespace) -> List[Record]:
    """Measure the models that have no record yet, ``options.jobs`` at a time, and return their records."""
    if not options.pair:
        raise InputError("--pair: give the labels of two rows")
    data, models = DataFolder(options.data), options.models or options.data.resolve().parent
    runs = [Run(label, seed) for seed in options.seeds for label in dict.fromkeys(sum(options.pair, []))]
    absent = [run.name for run in runs if not (models / run.name / "average.pt").is_file()]
    if absent:
        raise InputError(f"{models / absent[0]}: has no average.pt; train it by `rela study`")

    def complete(run: Run) -> Record:
        record, checkpoint = options.output / f"{run.name}.json", models / run.name / "average.pt"
        made_of = {"model": sha256(checkpoint), "penalties": list(PENALTIES)}
        if not is_done(record, made_of):
            write_json(record, {**run._asdict(), **measure(data, checkpoint, options.output), "made_of": made_of})
        return read_json(record)

    with ThreadPoolExecutor(options.jobs) as pool:
        done = pool.map(complete, runs)
        return list(tqdm(done, total=len(runs), desc="length penalties", unit=" models", disable=None))


def measure(data: DataFolder, checkpoint: Path, output: Path) -> Record:
    """Return BLEU of one model on the dev set for each penalty, and on the test set for the usual and the best one."""
    usual = load_decoding().gnmt_lenpen
    valid = {str(penalty): translated(data, checkpoint, output, "valid", penalty) for penalty in PENALTIES}
    best = max(valid, key=lambda penalty: valid[penalty]["bleu"])
    test = {str(one): translated(data, checkpoint, output, "test", float(one)) for one in {str(usual), best}}
    about = {"processor": processor(), "versions": versions(["torch", "ve-fairseq", "sacrebleu"])}
    return {"usual": str(usual), "best": best, "valid": valid, "test": test, **about}


def translated(data: DataFolder, checkpoint: Path, output: Path, subset: str, penalty: float) -> Record:
    """Translate a subset with one length penalty, and return its scores."""
    prefix = output / "translations" / f"{checkpoint.parent.name}.{subset}.{penalty}"
    translate(data, checkpoint, prefix, load_decoding(gnmt_lenpen=penalty), subset)
    target, settings = data.settings.target_lang, data.settings
    hypotheses = list(read_lines(f"{prefix}.bpe"))
    references = list(read_lines(data.path / "raw" / f"{subset}.{target}"))
    return score(hypotheses, references, target, settings.tokeniser, truecased=settings.truecase)


def ratio(scores: Record) -> float:
    """Return the ratio of the lengths of hypotheses and references."""
    return scores["hypothesis_length"] / scores["reference_length"]


def markdown(pairs: Sequence[Sequence[str]], records: Sequence[Record]) -> str:
    """Return the table: for each row of each pair, BLEU and length with the usual and with the best penalty.

    Args:
        pairs: labels of rows; the difference is that of the second to the first.
        records: those of the models.
    """
    rows = []
    for first, second in pairs:
        for label in (first, second):
            runs = [record for record in records if record["label"] == label]
            cells = [f"`{label}`", str(len(runs)), ", ".join(f"{float(run['best']):g}" for run in runs)]
            for which in ("usual", "best"):
                chosen = {run["seed"]: run["test"][run[which]] for run in runs}
                base = {
                    run["seed"]: run["test"][run[which]]["bleu"] for run in records if run["label"] == first != label
                }
                bleu = {seed: scores["bleu"] for seed, scores in chosen.items()}
                cells += [mean_sd(summarise([*bleu.values()])), mean_sd(summarise([*map(ratio, chosen.values())]), 3)]
                cells.append(mean_interval(paired(bleu, base), sign=True))
            rows.append(cells)
    usual = " and ".join(sorted({f"{float(run['usual']):g}" for run in records}))
    head = ["row", "seeds", "best penalties"]
    for penalty in (usual, "best"):
        head += [f"BLEU, {penalty}", f"length ratio, {penalty}", f"difference, {penalty}"]
    return table(head, rows, 1) + "\n"


if __name__ == "__main__":
    sys.exit(main())
