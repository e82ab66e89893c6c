"""The verb ``prune``."""

from pathlib import Path

from .arguments import Options, Parser, add_shared, locked, values


def _prune_options(parser: Parser) -> None:
    parser.add_argument("checkpoint", type=Path, help="a model of transformer_rela, with any attention")
    add_shared(parser, "--data")
    parser.add_argument("--output", type=Path, required=True, help="checkpoint to write; OUTPUT.json says what and why")
    parser.add_argument(
        "--by",
        choices=("null", "loss", "random"),
        default="null",
        help="which heads go first: null at most queries, least rise of the loss without them, or drawn at random",
    )
    parser.add_argument("--remove", type=float, metavar="SHARE", help="share of all heads to remove, such as 0.25")
    parser.add_argument(
        "--null-rate",
        type=float,
        metavar="RATE",
        help="remove the heads that are null at this share of queries or more "
        "(default without --remove: 1, which leaves the output on the subset as it is)",
    )
    add_shared(parser, "--subset", default="valid", help="subset on which heads are measured")
    add_shared(parser, "--seed", help="seed of the random order, and of the order of equal heads")


def _prune(options: Options) -> None:
    """Remove attention heads from a model, first those that are null on every query."""
    from ..register import load_plugin

    load_plugin()
    from ..pruning.choice import Choice
    from ..pruning.prune import describe, prune

    choice = Choice(**values(options, "by", "remove", "null_rate", "seed"))
    with locked(options.output):
        record = prune(options.checkpoint, options.data, options.output, choice, options.subset)
    print(describe(record, options.output))


VERBS = {"prune": (_prune_options, _prune)}
