"""The verb ``bench``."""

import argparse
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, Optional

from ..errors import InputError
from ..files.configs import load_defaults
from .arguments import Options, Parser, add_shared, flag, given, positive


def _bench_options(parser: Parser) -> None:
    default = load_defaults("bench")
    names = ("parts", "lengths", "quick_lengths", "op_lengths", "contexts", "batches", "batches_cuda")
    parts, lengths, quick_lengths, op_lengths, contexts, batches, on_gpu = (_joined(default[name]) for name in names)
    add_shared(parser, "--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds: four minutes on two cores")
    parser.add_argument(
        "--parts",
        help="what to measure, also lm: language models by length of context, and op: the operator without fairseq "
        f"(default: {parts}; with --checkpoints: decoding; with only --data: training)",
    )
    parser.add_argument(
        "--lengths",
        help=f"lengths of the sequences of the core (default: {lengths}; with --quick on a CPU: {quick_lengths}) and "
        f"of op (default: {op_lengths}), or of the contexts of lm (default: {contexts})",
    )
    parser.add_argument(
        "--attention",
        nargs="+",
        metavar="NAME",
        help="variants to compare with softmax in training and decoding (default: those of Table 2)",
    )
    parser.add_argument("--threads", type=positive, help="number of CPU threads (default: torch's choice)")
    parser.add_argument("--name", help="folder in --output (default: the device, and -quick)")
    parser.add_argument("--output", type=Path, default=Path("benchmarks"), help="folder in which --name is made")
    parser.add_argument("--no-figures", action="store_true", help="only write benchmark.json")
    parser.add_argument("--data", type=Path, help="data folder: train on its text (Table 2), or decode its test set")
    trained = parser.add_argument_group("trained models on a test set (Figure 2)")
    trained.add_argument(
        "--checkpoints", type=Path, nargs="+", metavar="CHECKPOINT", help="models to decode with, one with softmax"
    )
    trained.add_argument("--subset", help=f"subset of the data folder (default: {default['subset']})")
    trained.add_argument("--batches", help=f"numbers of sentences in a batch (default: {batches}; on a GPU: {on_gpu})")
    trained.add_argument(
        "--rounds", type=positive, help=f"number of times that each group is decoded (default: {default['rounds']})"
    )
    trained.add_argument(
        "--sentences",
        type=positive,
        metavar="N",
        help=f"sentences in each of the ten groups (default: all; with --quick: {default['quick_sentences']})",
    )
    text = parser.add_argument_group("training on real text (Table 2)")
    text.add_argument(
        "--steps",
        type=positive,
        metavar="N",
        help=f"number of updates (default: {default['steps']}; with --quick: {default['quick_steps']})",
    )
    text.add_argument(
        "--max-tokens", type=positive, metavar="N", help="maximum number of pieces in a batch, padding included"
    )


def _bench(options: Options) -> None:
    """Time the variants against fairseq's softmax, side by side."""
    import logging
    import warnings

    from ..register import load_plugin

    load_plugin()
    logging.getLogger("fairseq_rela.attention").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*mismatched key_padding_mask")  # from torch, in fairseq's attention
    from ..benchmark.figures import draw
    from ..benchmark.plan import make_plan
    from ..benchmark.run import run
    from ..benchmark.shown import describe_result

    default = load_defaults("bench")
    parts = _parts(options, default)
    trained = _decoding_request(options, default) if options.checkpoints else None
    real = _training_request(options, default) if options.data is not None and "training" in parts else None
    kind = "-trained" if trained is not None else "-data" if real is not None else ""
    folder = options.output / (options.name or options.device + ("-quick" if options.quick else "") + kind)
    plan = make_plan(options.device, options.quick, _numbers(options, "lengths"))
    say = partial(print, flush=True)
    result = run(folder, plan, options.device, parts, options.threads, say, trained, real, options.attention or ())
    print(describe_result(result))
    drawn = [] if options.no_figures else draw(result, folder)
    print(f"{folder}: benchmark.json" + (" and figures" if drawn else ""))


def _parts(options: Options, default: Dict[str, Any]) -> List[str]:
    """Return the parts of the benchmark to run.

    Raises:
        InputError: an option needs another option that is not given.
    """
    usual = ["decoding"] if options.checkpoints else ["training"] if options.data else default["parts"]
    parts = [part.strip() for part in options.parts.split(",")] if options.parts else usual
    training = options.data is not None and "training" in parts
    decoding = options.data is not None and "decoding" in parts
    for names, needs, there in (
        (("subset", "batches", "rounds", "sentences"), "--checkpoints", options.checkpoints),
        (("attention",), "the part training or decoding", {"training", "decoding"} & set(parts)),
        (("steps", "max_tokens"), "--data and the part training", training),
        (("checkpoints",), "--data and the part decoding", decoding),
        (("data",), "the part training, or --checkpoints", training or options.checkpoints),
    ):
        for name in given(options, *names):
            if not there:
                raise InputError(f"{flag(name)} needs {needs}; give it as well")
    return parts


def _decoding_request(options: Options, default: Dict[str, Any]) -> Any:
    """Return what to decode, with defaults for options that are not given."""
    from ..benchmark.trained import Request
    from ..experiment.decoding import load_decoding

    return Request(
        options.checkpoints,
        options.data,
        load_decoding(),
        options.subset or default["subset"],
        _numbers(options, "batches") or default["batches_cuda" if options.device == "cuda" else "batches"],
        options.rounds or default["rounds"],
        options.sentences or (default["quick_sentences"] if options.quick else None),
    )


def _training_request(options: Options, default: Dict[str, Any]) -> Any:
    """Return what to train on real text, with defaults for options that are not given."""
    from ..benchmark.real_text import Request

    steps = options.steps or default["quick_steps" if options.quick else "steps"]
    return Request(options.data, steps, options.max_tokens)


def _numbers(options: Options, name: str) -> Optional[List[int]]:
    """Return the numbers of an option such as ``--lengths 1024,8192``, or None if it is not given.

    Raises:
        InputError: a part is not a number of at least 1.
    """
    text = getattr(options, name)
    try:
        return [positive(part.strip()) for part in text.split(",")] if text else None
    except argparse.ArgumentTypeError as error:
        raise InputError(f"{flag(name)} {error}") from error


def _joined(values: List[Any]) -> str:
    return ",".join(map(str, values))


VERBS = {
    "bench": (_bench_options, _bench),
}
