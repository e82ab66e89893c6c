"""The verbs for whole experiments: ``reproduce``, ``study``, ``report``."""

import sys
from pathlib import Path
from typing import List

from ..errors import InputError
from ..files.configs import load_defaults
from .arguments import Options, Parser, add_shared, locked, positive, values


def _reproduce_options(parser: Parser) -> None:
    default = load_defaults("experiment")
    add_shared(parser, "task")
    parser.add_argument(
        "attention",
        nargs="?",
        default=default["attention"],
        help=f"name of a variant, such as softmax (default: {default['attention']})",
    )
    parser.add_argument(
        "stages", nargs="*", metavar="STAGE", help=f"stages to run (default: {', '.join(default['stages'])})"
    )
    parser.add_argument("--raw", type=Path, help="a folder with the raw corpus, instead of fetching it")
    parser.add_argument(
        "--gold-alignment",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="for the stage analyze: a folder with sentences and gold word links of the languages, such as test.de-en "
        "and deen.talp; or its files, with this option repeated for each",
    )
    parser.add_argument(
        "--start",
        metavar="RUN",
        help="start from the averaged model of another run of the task, such as softmax: the name of its folder in "
        "ROOT/TASK",
    )
    add_shared(parser, "--root", "--choose", "--offline", "--workers", "--moses", "--override")


def _reproduce(options: Options) -> None:
    """Run all stages of a task, or some of them."""
    from ..experiment.experiment import Experiment
    from ..experiment.reproduce import STAGES, reproduce
    from ..experiment.shown import result_table

    experiment = Experiment(
        **values(options, "task", "attention", "root", "raw", "workers", "offline", "moses", "start"),
        overrides=tuple(options.override),
        choose=tuple(options.choose),
        gold_alignment=tuple(options.gold_alignment),
    )
    if options.attention in STAGES and options.attention != "attention":
        raise InputError(f"give the attention before the stages: {options.task} rela_g {options.attention} ...")
    stages: List[str] = options.stages or load_defaults("experiment")["stages"]
    reproduce(experiment, stages)
    if "attention" in stages and "score" in stages:
        print("\n" + result_table(experiment))


def _study_options(parser: Parser) -> None:
    parser.add_argument("name", help="a study of configs/study/")
    parser.add_argument(
        "--jobs", type=positive, default=1, help="number of runs at a time; if more than 1, with one thread each"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="LABEL", help="only the runs of this row; may be repeated"
    )
    parser.add_argument(
        "--run",
        dest="index",
        type=int,
        metavar="INDEX",
        help="do only one run, by its number in --list; collect nothing",
    )
    parser.add_argument("--list", action="store_true", help="only print the runs and their state")
    parser.add_argument(
        "--collect", action="store_true", help="train nothing; only make tables and figures of finished runs"
    )
    parser.add_argument(
        "--gold-alignment",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="train nothing; measure the rows of --only, otherwise the best one, on sentences with gold word links, "
        "given as for `rela reproduce`",
    )
    parser.add_argument("--output", type=Path, default=Path("studies"), help="folder in which the folder NAME is made")
    parser.add_argument("--raw", type=Path, help="a folder with the raw corpus, for tasks that are not downloaded")
    add_shared(parser, "--workers", "--root", "--override")


def _study(options: Options) -> None:
    """Train, measure and compare the rows of a study over several seeds."""
    from ..study import gold_set, queue
    from ..study.collect import collect
    from ..study.docs import fill_documents
    from ..study.folder import StudyFolder
    from ..study.page import write_study
    from ..study.perform import perform
    from ..study.spec import load_study

    study = load_study(options.name, tuple(options.override))
    folder = StudyFolder(study, options.output / study.name, options.root, options.raw, options.workers)
    runs = queue.select(folder, options.only)
    if options.list:
        for run in runs:
            record = run.finished()
            print(run.index, run.name, record["state"] if record else "-", sep="\t")
        return
    if options.index is not None:
        if not 0 <= options.index < len(folder.runs):
            raise InputError(f"--run {options.index}: {study.name} has the runs 0 to {len(folder.runs) - 1}")
        run = folder.runs[options.index]
        with locked(run.record):
            queue.prepare_data(folder)
            perform(run)
        return
    if options.gold_alignment:
        labels = options.only or [gold_set.best_label(collect(folder))]
        print(gold_set.measure(folder, labels, options.gold_alignment))
    try:
        if not options.collect and not options.gold_alignment:
            queue.prepare_data(folder)
            queue.run_queue(runs, options.jobs, _this_command(options))
    finally:
        if any(run.record.is_file() for run in folder.runs):
            with locked(folder.path / "study.json"):
                collected = collect(folder)
                write_study(collected, folder.path)
                changed = fill_documents(collected, folder.path.resolve().parent.parent)
            print(f"{folder.path}: study.json, tables, page and figures", *changed, sep="\n")


def _report_options(parser: Parser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run: experiments/TASK/ATTENTION")
    parser.add_argument(
        "--output", type=Path, default=Path("report.html"), help="page to write; figures go into a folder beside it"
    )
    parser.add_argument(
        "--benchmark", type=Path, help="folder or file that `rela bench` wrote, for Figure 2 and Table 2"
    )
    parser.add_argument(
        "--ranking",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="outputs of `rela rank` with --keep-best, --keep-worst or --sample to show",
    )


def _report(options: Options) -> None:
    """Write one HTML page that compares runs with each other and with the paper."""
    from ..report.page import write_report

    benchmark = options.benchmark
    if benchmark is not None and benchmark.is_dir():
        benchmark = benchmark / "benchmark.json"
    write_report(options.runs, options.output, benchmark, options.ranking)
    print(f"{options.output}: open this file in a browser; it loads nothing from the internet")


def _this_command(options: Options) -> List[str]:
    """Return the command that performs one run of a study; the caller adds ``--run INDEX``."""
    raw = [] if options.raw is None else ["--raw", str(options.raw)]
    overrides = [word for override in options.override for word in ("--override", override)]
    places = ["--root", str(options.root), "--output", str(options.output)]
    rela = [sys.executable, "-W", "ignore", "-m", "fairseq_rela.cli"]
    return [*rela, "study", options.name, *places, *raw, *overrides]


VERBS = {
    "reproduce": (_reproduce_options, _reproduce),
    "study": (_study_options, _study),
    "report": (_report_options, _report),
}
