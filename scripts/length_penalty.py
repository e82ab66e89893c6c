#!/usr/bin/env python3
"""Choose the length penalty of each model on the dev set, and compare pairs of models with their own penalties.

    python scripts/length_penalty.py --study multi30k_en_de --pair softmax rela_g --output FOLDER
    python scripts/length_penalty.py --output FOLDER       # only make the table again

The models are those of two rows of a study for each --pair, with the seeds for which --root has both. Every model
translates the dev set with every penalty (the exponent of the GNMT penalty), and the test set with the study's penalty
and with the one that has the highest BLEU on the dev set. A model that has been measured is not measured again.
FOLDER/length_penalty.json has the results and FOLDER/length_penalty.md the table.
"""

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, Sequence

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
from fairseq_rela.study.folder import Run, StudyFolder
from fairseq_rela.study.spec import load_study
from fairseq_rela.study.tables import markdown as table
from fairseq_rela.study.text import mean_interval, mean_sd

PENALTIES = (0.0, 0.6, 1.0, 1.5, 2.0, 3.0)
Record = Dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", help="a study of configs/study/ that has been trained")
    parser.add_argument("--root", type=Path, default=Path("experiments"), help="folder of its data and runs")
    parser.add_argument(
        "--pair",
        nargs=2,
        action="append",
        default=[],
        metavar=("LABEL", "OTHER"),
        help="two rows, whose difference is OTHER minus LABEL; may be repeated",
    )
    parser.add_argument("--output", type=Path, required=True, help="folder for the translations and the results")
    parser.add_argument("--jobs", type=int, default=1, help="number of models at a time, one thread each")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    results = options.output / "length_penalty.json"
    try:
        if options.study is not None:
            write_json(results, {"study": options.study, "pairs": options.pair, "runs": measure_all(options)})
        if not results.is_file():
            raise InputError(f"{options.output}: no measurements; give --study and --pair")
        found = read_json(results)
        with write_whole(options.output / "length_penalty.md") as file:
            file.write(markdown(found["pairs"], found["runs"]))
    except InputError as error:
        print(f"length_penalty: error: {error}", file=sys.stderr)
        return 2
    return 0


def find_models(folder: StudyFolder, pairs: Sequence[Sequence[str]]) -> List[Run]:
    """Return the runs of the rows of each pair with the seeds for which both models are there."""
    runs = {(run.job.row.label, run.job.seed): run for run in folder.runs}
    labels = [row.label for row in folder.study.rows]
    found = {}
    for pair in pairs:
        unknown = [label for label in pair if label not in labels]
        if unknown:
            raise InputError(f"--pair {unknown[0]}: not a row of {folder.study.name}; choose of {', '.join(labels)}")
        models = [[runs.get((label, seed)) for label in pair] for seed in sorted({seed for _, seed in runs})]
        there = [both for both in models if all(run and run.experiment.average.is_file() for run in both)]
        if not there:
            example = next(run for both in models for run in both if run)
            raise InputError(f"{example.experiment.average}: no model of {' and '.join(pair)} is there; train them")
        found.update({run.name: run for both in there for run in both})
    return list(found.values())


def measure_all(options: argparse.Namespace) -> List[Record]:
    """Measure the models that have no record yet, ``options.jobs`` at a time, and return their records."""
    if not options.pair:
        raise InputError("--pair: give the labels of two rows")
    study = load_study(options.study)
    runs = find_models(StudyFolder(study, options.output, options.root), options.pair)
    data = DataFolder(runs[0].experiment.data)

    def complete(run: Run) -> Record:
        record, checkpoint = options.output / f"{run.name}.json", run.experiment.average
        made_of = {"model": sha256(checkpoint), "penalties": list(PENALTIES)}
        if not is_done(record, made_of):
            measured = measure(data, checkpoint, options.output / "translations" / run.name)
            write_json(record, {"label": run.job.row.label, "seed": run.job.seed, **measured, "made_of": made_of})
        return read_json(record)

    with ThreadPoolExecutor(options.jobs) as pool:
        done = pool.map(complete, runs)
        return list(tqdm(done, total=len(runs), desc="length penalties", unit=" models", disable=None))


def measure(data: DataFolder, checkpoint: Path, prefix: Path) -> Record:
    """Return BLEU of one model on the dev set for each penalty, and on the test set for the usual and the best one."""
    usual = load_decoding().gnmt_lenpen
    valid = {str(penalty): translated(data, checkpoint, prefix, "valid", penalty) for penalty in PENALTIES}
    best = max(valid, key=lambda penalty: valid[penalty]["bleu"])
    test = {str(one): translated(data, checkpoint, prefix, "test", float(one)) for one in {str(usual), best}}
    about = {"processor": processor(), "versions": versions(["torch", "ve-fairseq", "sacrebleu"])}
    return {"usual": str(usual), "best": best, "valid": valid, "test": test, **about}


def translated(data: DataFolder, checkpoint: Path, prefix: Path, subset: str, penalty: float) -> Record:
    """Translate a subset with one length penalty, and return its scores."""
    output = prefix.with_name(f"{prefix.name}.{subset}.{penalty}")
    translate(data, checkpoint, output, load_decoding(gnmt_lenpen=penalty), subset)
    target, settings = data.settings.target_lang, data.settings
    hypotheses = list(read_lines(f"{output}.bpe"))
    references = list(read_lines(data.path / "raw" / f"{subset}.{target}"))
    return score(hypotheses, references, target, settings.tokeniser, truecased=settings.truecase)


def by_seed(records: Sequence[Record], label: str, which: str, key: str) -> Dict[int, float]:
    """Return a number of the test set for each seed of a row.

    Args:
        records: those of the models.
        label: the row.
        which: ``usual`` or ``best``, the length penalty.
        key: ``bleu``, or ``ratio`` for the length of the hypotheses divided by that of the references.
    """
    scores = {run["seed"]: run["test"][run[which]] for run in records if run["label"] == label}
    if key == "ratio":
        return {seed: one["hypothesis_length"] / one["reference_length"] for seed, one in scores.items()}
    return {seed: one[key] for seed, one in scores.items()}


def markdown(pairs: Sequence[Sequence[str]], records: Sequence[Record]) -> str:
    """Return the table: for each row of each pair, BLEU and length with the usual and with the best penalty.

    Args:
        pairs: labels of rows; the difference is that of the second to the first.
        records: those of the models.
    """
    rows = []
    for first, label in ((pair[0], label) for pair in pairs for label in pair):
        best = [run["best"] for run in records if run["label"] == label]
        cells = [f"`{label}`", str(len(best)), ", ".join(f"{float(penalty):g}" for penalty in best)]
        for which in ("usual", "best"):
            bleu, base = (by_seed(records, row, which, "bleu") for row in (label, first))
            lengths = by_seed(records, label, which, "ratio")
            cells += [mean_sd(summarise([*bleu.values()])), mean_sd(summarise([*lengths.values()]), 3)]
            cells.append("-" if label == first else mean_interval(paired(bleu, base), sign=True))
        rows.append(cells)
    usual = " and ".join(sorted({f"{float(run['usual']):g}" for run in records}))
    head = ["row", "seeds", "best penalties"]
    for penalty in (usual, "best"):
        head += [f"BLEU, {penalty}", f"length ratio, {penalty}", f"difference, {penalty}"]
    return table(head, rows, 1) + "\n"


if __name__ == "__main__":
    sys.exit(main())
