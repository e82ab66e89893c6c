"""The verbs that look inside a model: ``attention``, ``analyze``."""

from functools import partial
from pathlib import Path
from typing import Any, Dict

from ..errors import InputError
from .arguments import Options, Parser, add_shared, indices, locked, values


def _attention_options(parser: Parser) -> None:
    add_shared(parser, "checkpoint", "--data", "--subset")
    parser.add_argument("--output", type=Path, help="file to write the numbers to, as JSON")


def _attention(options: Options) -> None:
    """Print which attention runs at each site of a model, and how sparse it is."""
    from ..register import load_plugin

    load_plugin()
    from ..analysis.analyze import summarise
    from ..experiment.shown import describe_attention
    from ..files.outputs import refuse_overwriting
    from ..files.records import write_json

    if options.output:
        refuse_overwriting([options.checkpoint], [options.output])
    with locked(options.output):
        summary = summarise(options.checkpoint, options.data, options.subset)
        if options.output:
            write_json(options.output, summary)
    print(describe_attention(summary))


def _analyze_options(parser: Parser) -> None:
    add_shared(parser, "checkpoint", "--data", "--subset")
    parser.add_argument("--output", type=Path, required=True, help="folder to write analysis.json, examples.json into")
    parser.add_argument("--gold", type=Path, help="gold word alignment of the subset, for alignment error rates")
    parser.add_argument("--gold-base", type=int, choices=(0, 1), default=0, help="number of the first word in --gold")
    parser.add_argument("--gold-swapped", action="store_true", help="--gold has the target word first")
    parser.add_argument("--tags", type=Path, help="file with a tag for each target word, such as its part of speech")
    parser.add_argument("--source-tags", type=Path, help="file with a tag for each source word")
    parser.add_argument("--examples", type=int, default=6, help="number of sentences of which to keep all weights")
    parser.add_argument(
        "--examples-of", type=indices, metavar="N,N", help="these sentences instead, counted from 0, such as 3,17"
    )
    parser.add_argument(
        "--heat-map",
        action="append",
        default=[],
        metavar="HEAD",
        help="draw this head of the sentences of --examples-of, such as cross.layer1.head3 or encoder.layer0.mean, "
        "counted from 0; may be repeated",
    )
    add_shared(parser, "--seed", help="seed by which targets are shuffled, for comparison")
    parser.add_argument(
        "--level",
        choices=("words", "pieces"),
        help="what sparsity, null rates and head diversity are measured on (default: both; the paper: words)",
    )
    parser.add_argument(
        "--layer-attention",
        choices=("raw", "normalised"),
        default="raw",
        help="mean over heads from which words are aligned: of the weights, or of weights scaled to rows of sum 1",
    )
    add_shared(parser, "--source", help="source text instead of a subset, with words separated by spaces")
    add_shared(parser, "--target", "--tokenised")


def _analyze(options: Options) -> None:
    """Measure sparsity, null rates, head diversity and alignments of all layers and heads."""
    from ..register import load_plugin

    load_plugin()
    from ..analysis.analyze import analyze, analyze_text
    from ..analysis.record import describe, write
    from ..data.folder import DataFolder
    from ..data.pairs import describe_words
    from ..report import heatmaps
    from ..report.heatmaps import parse_head

    if options.output.exists() and not options.output.is_dir():
        raise InputError(f"--output {options.output}: a file; give a folder")
    heads = list(map(parse_head, options.heat_map))
    if heads and options.examples_of is None:
        raise InputError("--heat-map needs --examples-of N,N, the numbers of the sentences to draw")
    text = _text_pair(options)
    # an existing folder may be a run that another process trains, so only the file inside it is locked
    with locked(options.output / "analysis.json" if options.output.is_dir() else options.output):
        run = partial(analyze_text, **text) if text else partial(analyze, subset=options.subset)
        analysis = run(
            options.checkpoint,
            DataFolder(options.data) if text else options.data,
            gold_reversed=options.gold_swapped,
            **values(options, "gold", "gold_base", "tags", "source_tags", "seed", "examples", "examples_of"),
            **values(options, "level", "layer_attention"),
        )
        maps = heatmaps.draw(analysis, heads)
        write(analysis, options.output)
        heatmaps.write(maps, options.output / "heatmaps")
    if text:
        print(describe_words(analysis["text"]))
    print(describe(analysis))
    for name in sorted(maps):
        print(options.output / "heatmaps" / name)


def _text_pair(options: Options) -> Dict[str, Any]:
    """Return the arguments for a text that is analysed instead of a subset, or an empty dictionary.

    Raises:
        InputError: only one side is given, ``--tokenised`` without a text, or ``--subset`` with one.
    """
    if (options.source is None) != (options.target is None):
        raise InputError("--source and --target are the two sides of a text; give both")
    if options.source is None:
        if options.tokenised:
            raise InputError("--tokenised is of the text of --source and --target; give them, or leave it out")
        return {}
    if options.subset != "test":
        raise InputError("--source and --target take the place of --subset; leave it out")
    return values(options, "source", "target", "tokenised")


VERBS = {
    "attention": (_attention_options, _attention),
    "analyze": (_analyze_options, _analyze),
}
