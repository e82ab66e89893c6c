"""The verbs ``translate`` and ``score``."""

import sys
from pathlib import Path

from ..files.configs import load_defaults
from .arguments import Options, Parser, add_shared, given, locked


def _translate_options(parser: Parser) -> None:
    from ..experiment.decoding import load_decoding

    default = load_decoding()
    parser.add_argument("data", type=Path, help="data folder of `rela prepare`")
    parser.add_argument("--checkpoint", type=Path, required=True, help="the model")
    parser.add_argument("--output", type=Path, required=True, help="write OUTPUT.bpe, OUTPUT.tok and OUTPUT.txt")
    add_shared(parser, "--subset")
    parser.add_argument("--input", type=Path, help="translate a file of raw source text instead of the subset")
    parser.add_argument("--beam", type=int, help=f"size of the beam (default: {default.beam})")
    penalty = parser.add_mutually_exclusive_group()
    penalty.add_argument(
        "--gnmt-lenpen", type=float, help=f"exponent of the GNMT length penalty (default: {default.gnmt_lenpen})"
    )
    penalty.add_argument("--lenpen", type=float, help="exponent of fairseq's length penalty instead")
    parser.add_argument(
        "--max-len-a",
        type=float,
        help=f"A of the maximum length of an output, A times the source length plus B (default: {default.max_len_a})",
    )
    parser.add_argument("--max-len-b", type=int, help=f"B of the maximum length (default: {default.max_len_b})")
    parser.add_argument(
        "--max-tokens",
        type=int,
        help=f"maximum number of source pieces in a batch, padding included (default: {default.max_tokens})",
    )


def _translate(options: Options) -> None:
    """Translate a test set or a text file, one line of output for each line of input."""
    from ..data.folder import DataFolder
    from ..experiment.decoding import Decoding, load_decoding
    from ..experiment.translation import translate

    decoding = load_decoding(**given(options, *Decoding._fields))
    data = DataFolder(options.data)
    speed = translate(data, options.checkpoint, options.output, decoding, options.subset, options.input)
    print(f"{options.output}.txt: {speed}")


def _score_options(parser: Parser) -> None:
    parser.add_argument(
        "--hypotheses",
        type=Path,
        required=True,
        help="OUTPUT.bpe or OUTPUT.tok of `rela translate`, or the H- or D- lines of fairseq-generate",
    )
    parser.add_argument("--reference", type=Path, required=True, help="raw reference text, plain or .gz")
    parser.add_argument("-t", "--target-lang", required=True, help="target language code")
    tokeniser = load_defaults("preparation")["tokeniser"]
    parser.add_argument("--tokeniser", default=tokeniser, help="tokeniser of the data folder: moses or none")
    parser.add_argument("--truecased", action="store_true", help="the data folder was prepared with --truecase")
    parser.add_argument("--tokenised-reference", type=Path, help="for tokenised BLEU: text/SUBSET.LANG of the data")
    parser.add_argument("--output", type=Path, help="file to write the scores to, as JSON")


def _score(options: Options) -> None:
    """Print sacreBLEU of a translation against the raw reference."""
    from ..experiment.scoring import score, suspect_order
    from ..experiment.shown import describe_score
    from ..files.lines import read_lines
    from ..files.outputs import refuse_overwriting
    from ..files.plain_text import in_order
    from ..files.records import write_json

    tokenised = options.tokenised_reference
    if options.output:
        refuse_overwriting(filter(None, (options.hypotheses, options.reference, tokenised)), [options.output])
    with locked(options.output):
        hypotheses = in_order(list(read_lines(options.hypotheses)), options.hypotheses)
        references = list(read_lines(options.reference))
        scores = score(
            hypotheses,
            references,
            options.target_lang,
            options.tokeniser,
            list(read_lines(tokenised)) if tokenised else None,
            options.truecased,
        )
        if options.output:
            write_json(options.output, scores)
    print(describe_score(scores))
    if suspect_order(hypotheses, references):
        print(
            f"warning: lines of {options.hypotheses} are not as long as those of the reference; are they in its order? "
            "fairseq-generate prints by length: give its H- lines with their numbers, which are sorted here",
            file=sys.stderr,
        )


VERBS = {
    "translate": (_translate_options, _translate),
    "score": (_score_options, _score),
}
