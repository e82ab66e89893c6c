"""The verbs for word alignments: ``align``, ``aer``."""

import sys
from pathlib import Path

from .arguments import Options, Parser, add_shared, locked, values


def _align_options(parser: Parser) -> None:
    add_shared(parser, "checkpoint")
    add_shared(parser, "--data", required=False, help="data folder (default: the one that the checkpoint names)")
    add_shared(parser, "--source", "--target", required=True)
    add_shared(parser, "--tokenised")
    parser.add_argument("--output", type=Path, help="file of links i-j to write, and OUTPUT.json (default: print them)")
    parser.add_argument("--reverse", type=Path, metavar="CHECKPOINT", help="a model from target to source")
    parser.add_argument(
        "--reverse-data", type=Path, help="data folder of --reverse (default: the one that its checkpoint names)"
    )
    parser.add_argument(
        "--head",
        help="head to take instead of the best one, such as normal.layer1.head3 or shifted.layer0.mean, counted from 0",
    )


def _align(options: Options) -> None:
    """Write word links of two text files by the best head of a model."""
    from ..register import load_plugin

    load_plugin()
    from ..analysis.align import align, describe, warn
    from ..data.pairs import describe_words
    from ..files.outputs import refuse_overwriting, write_whole
    from ..files.records import write_json

    output = options.output
    if output is not None:
        record = output.with_name(f"{output.name}.json")
        inputs = (options.checkpoint, options.source, options.target, options.reverse)
        refuse_overwriting(filter(None, inputs), [output, record])
    with locked(output):
        alignment = align(
            options.checkpoint,
            options.source,
            options.target,
            options.data,
            **values(options, "tokenised", "reverse", "reverse_data", "head"),
        )
        if output is not None:
            with write_whole(output) as file:
                file.writelines(line + "\n" for line in alignment.lines)
            write_json(record, alignment.record)
    if output is None:
        for line in alignment.lines:
            print(line)
    print(describe_words(alignment.record["text"]), file=sys.stderr)
    print(describe(alignment.record), file=sys.stderr)
    for warning in warn(alignment.record):
        print(f"warning: {warning}", file=sys.stderr)


def _aer_options(parser: Parser) -> None:
    parser.add_argument("gold", type=Path, help="links i-j (sure) and ipj (possible), one line per sentence pair")
    parser.add_argument("hypothesis", type=Path, help="links i-j, or A- lines of fairseq-generate")
    parser.add_argument(
        "--gold-base",
        choices=("auto", "0", "1"),
        default="auto",
        help="number of the first word in the gold file; auto: 1 if no number is 0",
    )
    parser.add_argument(
        "--hypothesis-base", choices=("auto", "0", "1"), default="0", help="number of the first word in the hypothesis"
    )
    parser.add_argument("--gold-swapped", action="store_true", help="the gold file has the target word first")
    parser.add_argument("--hypothesis-swapped", action="store_true", help="the hypothesis has the target word first")
    parser.add_argument(
        "--sentences", type=Path, help='the text as "source ||| target", against which links are checked'
    )


def _aer(options: Options) -> None:
    """Print the alignment error rate of a word alignment against a gold one."""
    from ..analysis.aer import count, fits_better, guess_base, read_links
    from ..files.lines import read_both_sides, read_lines
    from ..files.plain_text import in_order

    lengths = None
    if options.sentences is not None:
        lengths = [(len(source.split()), len(target.split())) for source, target in read_both_sides(options.sentences)]
    files = []
    same = options.gold.resolve() == options.hypothesis.resolve()  # the same file has the same base
    for path, base, swapped in (
        (options.gold, options.gold_base, options.gold_swapped),
        (options.hypothesis, options.gold_base if same else options.hypothesis_base, options.hypothesis_swapped),
    ):
        lines = in_order(list(read_lines(path)), path, "A")
        first = guess_base(lines) if base == "auto" else int(base)
        if base == "auto":
            print(f"{path}: words are numbered from {first}", file=sys.stderr)
        files.append(read_links(lines, str(path), first, swapped, lengths))
    hypothesis = [line.possible for line in files[1]]
    print(count(files[0], hypothesis))
    better = fits_better(files[0], hypothesis)
    if better:
        print(f"warning: {better}; are the options for base and side right?", file=sys.stderr)


VERBS = {
    "align": (_align_options, _align),
    "aer": (_aer_options, _aer),
}
