"""The verb ``rank``."""

from pathlib import Path

from ..errors import InputError
from ..files.configs import load_defaults
from .arguments import Options, Parser, add_shared, given, locked, positive, values


def _rank_options(parser: Parser) -> None:
    add_shared(parser, "checkpoint", help="a model of this plugin")
    parser.add_argument("source", type=Path, help="raw source text, plain or .gz")
    parser.add_argument("target", type=Path, help="raw target text")
    add_shared(parser, "--data", help="data folder of `rela prepare`")
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        help="file of scores to write, as TSV; selected pairs are written beside it",
    )
    parser.add_argument("--keep-best", type=positive, metavar="N", help="also write the N best pairs")
    parser.add_argument("--max-null-rate", type=float, metavar="X", help="also write the pairs up to this null rate")
    parser.add_argument(
        "--by",
        choices=("log_probability", "null_rate", "both"),
        default="log_probability",
        help="which pairs are best: high log-probability per piece, low null rate, or the mean of both ranks",
    )
    parser.add_argument("--keep-worst", type=positive, metavar="N", help="also write the N worst pairs")
    parser.add_argument("--sample", type=positive, metavar="N", help="also write N pairs drawn at random")
    add_shared(parser, "--workers")
    add_shared(parser, "--device", help="where to run (default: cuda if there is one)")
    max_tokens = load_defaults("decoding")["max_tokens"]
    parser.add_argument(
        "--max-tokens", type=positive, default=max_tokens, help="maximum number of pieces in a batch, padding included"
    )
    parser.add_argument(
        "--damage",
        action="store_true",
        help="instead of ranking, damage a third of the pairs in known ways and measure how well the scores find them",
    )
    parser.add_argument(
        "--more-checkpoints",
        type=Path,
        nargs="+",
        default=[],
        metavar="CHECKPOINT",
        help="with --damage: models of other seeds, for means and paired differences",
    )
    add_shared(parser, "--seed", help="seed of --damage and of --sample")


def _rank(options: Options) -> None:
    """Score sentence pairs by their null rate and log-probability, and keep the best."""
    from ..register import load_plugin

    load_plugin()
    if options.damage:
        _damage(options)
        return
    if options.more_checkpoints:
        raise InputError("--more-checkpoints: only --damage measures several models; give it, or only one model")
    from ..analysis.rank import rank

    rank(
        options.checkpoint,
        options.data,
        options.source,
        options.target,
        options.output,
        **values(options, "keep_best", "keep_worst", "max_null_rate", "sample", "by"),
        **values(options, "workers", "device", "max_tokens", "seed"),
    )


def _damage(options: Options) -> None:
    """Damage some of the pairs and print how well each order of the ranking finds them."""
    from ..analysis.detection import describe, evaluate
    from ..data.folder import DataFolder
    from ..data.settings import refuse_unfit_pair

    if given(options, "keep_best", "max_null_rate", "keep_worst", "sample"):
        raise InputError(
            "--damage measures, it keeps nothing: leave --keep-best, --max-null-rate, --keep-worst and --sample out"
        )
    data = DataFolder(options.data)
    refuse_unfit_pair(options.source, options.target, data.settings)
    with locked(options.output):
        result = evaluate(
            [options.checkpoint, *options.more_checkpoints],
            data,
            options.source,
            options.target,
            options.output,
            **values(options, "seed", "device", "max_tokens"),
        )
    print(describe(result))


VERBS = {
    "rank": (_rank_options, _rank),
}
