"""The command ``rela VERB ...``: prepare data, train, translate, score, analyse, or run all stages at once."""

import argparse
import os
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, ContextManager, Dict, List, Optional, Sequence, Tuple

from ..errors import InputError

# verbs import the modules that they need, so that `rela --help` is fast
_STAGES = ("download", "extract", "prepare", "train", "average", "translate", "score", "attention", "analyze")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run one verb and return its exit code: 0, 2 for an error (one line on standard error), 130 if interrupted."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    if options.verb is None:
        parser.print_help()
        return 0
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a path that the terminal cannot encode must not end a run
            stream.reconfigure(errors="backslashreplace")
    try:
        options.run(options)
        print(end="", flush=True)
    except (InputError, ImportError) as error:
        print(f"rela {options.verb}: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a full or read-only disk, or a folder without write permission
        where = f"{error.filename}: " if error.filename else ""
        reason = error.strerror or str(error)
        print(f"rela {options.verb}: error: {where}{reason}; fix this and rerun the same command", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"rela {options.verb}: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        """Exit with code 2 and one line on standard error; argparse would print the whole usage before it."""
        self.exit(2, f"{self.prog}: error: {message}; {self.prog} --help says more\n")


class _IntermixedParser(_Parser):
    """Parser that accepts positional arguments anywhere, also between and after options."""

    _within = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._within:  # called by the next line
            return super().parse_known_args(args, namespace)
        self._within = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._within = False


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="rela", description="Rectified linear attention for fairseq: from raw text to score.")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=_IntermixedParser)
    for add in (
        *(_add_reproduce, _add_download, _add_synthetic, _add_prepare),
        *(_add_train, _add_average, _add_translate, _add_score, _add_attention, _add_analyze, _add_rank, _add_aer),
        *(_add_align, _add_report, _add_bench, _add_study, _add_user_dir),
    ):
        add(verbs)
    return parser


def _verb(verbs, name: str, run, summary: str) -> argparse.ArgumentParser:
    parser = verbs.add_parser(
        name, help=summary, description=summary, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.set_defaults(run=run)
    return parser


def _add_synthetic(verbs) -> None:
    parser = _verb(verbs, "synthetic", _synthetic, "generate a small parallel corpus with its gold word alignment")
    parser.add_argument("output", type=Path, help="folder to write")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same corpus")
    parser.add_argument("--pairs", type=int, default=5000, help="training pairs")


def _synthetic(options: argparse.Namespace) -> None:
    from ..corpora.synthetic import write_corpus

    with _holding(options.output):
        sizes = write_corpus(options.output, options.seed, options.pairs)
    print(f"{options.output}: " + ", ".join(f"{split} {size:,} pairs" for split, size in sizes.items()))


def _add_download(verbs) -> None:
    parser = _verb(verbs, "download", _download, "fetch the archives of a task, verify them, and extract its raw text")
    parser.add_argument("task", help="a task of configs/")
    parser.add_argument("--list", action="store_true", help="only show names and addresses, for fetching by hand")
    _root_option(parser)
    _source_options(parser)


def _download(options: argparse.Namespace) -> None:
    from ..experiment import config
    from ..experiment.pipeline import Experiment, reproduce

    task = config.load_task(options.task, tuple(options.choose))
    if task.sources is None:
        raise InputError(f"{options.task} is not fetched: it is generated, or you bring it by --raw")
    if options.list:
        for name, download in task.downloads.items():
            for mirror in download.mirrors:
                print(name, *mirror.parts, sep="\t")
        return
    experiment = Experiment(
        options.task, "softmax", options.root, choose=tuple(options.choose), offline=options.offline
    )
    reproduce(experiment, ("download", "extract"))


def _add_prepare(verbs) -> None:
    parser = _verb(
        verbs, "prepare", _prepare, "raw parallel text to normalised, tokenised, cleaned, BPE'd, binary data"
    )
    parser.add_argument("--config", help="a task of configs/, which then names files and settings")
    parser.add_argument("--raw", type=Path, help="with --config: the folder with the raw corpus")
    for split in ("train", "valid", "test"):
        parser.add_argument(
            f"--{split}", type=Path, metavar="PREFIX", help=f"{split} files PREFIX.SOURCE and PREFIX.TARGET, or .gz"
        )
    parser.add_argument("-s", "--source-lang", help="source language code")
    parser.add_argument("-t", "--target-lang", help="target language code")
    parser.add_argument("--output", type=Path, required=True, help="data folder to make")
    parser.add_argument(
        "--tokeniser", help="moses (Chinese: jieba), or none for text that is tokenised (default: moses)"
    )
    parser.add_argument(
        "--tokenised", action="append", metavar="SPLIT", help="this split is tokenised already; may be repeated"
    )
    parser.add_argument("--truecase", action="store_true", default=None, help="learn and apply Moses' truecasing")
    parser.add_argument("--remove-diacritics", action="store_true", default=None, help="of Romanian")
    parser.add_argument(
        "--normalise-width",
        action="store_true",
        default=None,
        help="full-width Latin letters and digits, as in Chinese, become those of ASCII (default: they stay)",
    )
    parser.add_argument("--max-tokens", type=int, help="drop training pairs longer than this (default: 250)")
    parser.add_argument("--max-ratio", type=float, help="and those more unequal in length than this (default: 9)")
    parser.add_argument("--max-pieces", type=int, help="and those longer than this after BPE (default: 1023)")
    parser.add_argument(
        "--remove-duplicates", action="store_true", default=None, help="and those that came before, of equal tokens"
    )
    parser.add_argument("--merges", type=int, help="joint BPE merges (default: 32000)")
    parser.add_argument(
        "--vocabulary-threshold", type=int, help="least frequency of a piece in its language (default: 50)"
    )
    _choose_option(parser)
    _text_options(parser)


_SETTINGS = (
    *("tokeniser", "tokenised", "truecase", "remove_diacritics", "max_tokens", "max_ratio", "max_pieces"),
    *("remove_duplicates", "merges", "vocabulary_threshold", "normalise_width"),
)


def _prepare(options: argparse.Namespace) -> None:
    from ..data.prepare import Corpus, describe, prepare
    from ..data.settings import Settings
    from ..experiment import config

    given = {name: getattr(options, name) for name in _SETTINGS if getattr(options, name) is not None}
    if options.config:
        for name in ("source_lang", "target_lang", "train", "valid", "test"):
            if getattr(options, name) is not None:
                raise InputError(f"--config names languages and files: leave --{name.replace('_', '-')} out")
        if options.raw is None:
            raise InputError("--config needs --raw FOLDER, the folder with the raw corpus")
        task = config.load_task(options.config, tuple(options.choose))
        settings = Settings(**{**task.settings.__dict__, **given})
        corpus = task.corpus(options.raw)
    else:
        if options.raw is not None or options.choose:
            raise InputError("--raw and --choose go with --config; give --train, --valid and --test instead")
        if not options.source_lang or not options.target_lang:
            raise InputError("give --source-lang and --target-lang, or --config")
        settings = Settings(options.source_lang, options.target_lang, **given)
        corpus = Corpus(
            {
                split: tuple(_plain_or_gz(getattr(options, split), lang) for lang in settings.languages)
                for split in ("train", "valid", "test")
                if getattr(options, split) is not None
            }
        )
    print(describe(prepare(corpus, settings, options.output, options.workers, options.moses)))


def _plain_or_gz(prefix: Path, lang: str) -> Path:
    plain, packed = Path(f"{prefix}.{lang}"), Path(f"{prefix}.{lang}.gz")
    return packed if packed.is_file() and not plain.is_file() else plain


def _add_train(verbs) -> None:
    parser = _verb(verbs, "train", _train, "train by fairseq-hydra-train with a shipped configuration")
    parser.add_argument("task", help="a task of configs/")
    parser.add_argument("--attention", default="rela_g", help="a variant of Table 1")
    parser.add_argument("--data", type=Path, required=True, help="data folder of `rela prepare`")
    parser.add_argument("--save-dir", type=Path, required=True, help="folder for the checkpoints")
    _override_option(parser)


def _train(options: argparse.Namespace) -> None:
    from ..experiment.pipeline import train

    train(options.task, options.attention, options.data, options.save_dir, options.override)


def _add_average(verbs) -> None:
    parser = _verb(verbs, "average", _average, "average the last checkpoints of a run")
    parser.add_argument("run_dir", type=Path, nargs="?", help="folder with the checkpoints")
    parser.add_argument("--last", type=int, default=5, help="how many, chosen by the update numbers inside the files")
    parser.add_argument("--inputs", type=Path, nargs="+", help="these files instead")
    parser.add_argument("--output", type=Path, required=True, help="file to write")


def _average(options: argparse.Namespace) -> None:
    from .. import checkpoints
    from ..experiment.pipeline import average_last

    if (options.run_dir is None) == (options.inputs is None):
        raise InputError("give the folder of a run, or --inputs with files; one of them")
    if options.inputs is None:
        average_last(options.run_dir, options.last, options.output)
    else:
        with _holding(options.output):
            checkpoints.average(options.inputs, options.output)
        for path in options.inputs:
            print(f"update {checkpoints.updates_of(checkpoints.load(path)):,}: {path}")
        print(f"{options.output}: the mean of {len(options.inputs)} checkpoints")


def _add_translate(verbs) -> None:
    parser = _verb(verbs, "translate", _translate, "translate a test set or a text file, one line for each line")
    parser.add_argument("data", type=Path, help="data folder of `rela prepare`")
    parser.add_argument("--checkpoint", type=Path, required=True, help="the model")
    parser.add_argument("--output", type=Path, required=True, help="writes OUTPUT.bpe, OUTPUT.tok and OUTPUT.txt")
    parser.add_argument("--subset", default="test", help="subset of the data folder")
    parser.add_argument("--input", type=Path, help="a file of raw source text instead")
    parser.add_argument("--beam", type=int, help="size of the beam (default: 4)")
    penalty = parser.add_mutually_exclusive_group()
    penalty.add_argument("--gnmt-lenpen", type=float, help="exponent of the GNMT length penalty (default: 0.6)")
    penalty.add_argument("--lenpen", type=float, help="exponent of fairseq's length penalty instead")
    parser.add_argument("--max-len-a", type=float, help="at most a times the source length (default: 1)")
    parser.add_argument("--max-len-b", type=int, help="plus b (default: 50)")
    parser.add_argument("--max-tokens", type=int, help="source pieces in a batch (default: 4096)")


def _translate(options: argparse.Namespace) -> None:
    from ..experiment import config
    from ..experiment.evaluation import translate

    decoding = config.load_decoding()
    if options.lenpen is not None:
        decoding = decoding._replace(gnmt_lenpen=None)
    names = [name for name in decoding._fields if getattr(options, name) is not None]
    decoding = decoding._replace(**{name: getattr(options, name) for name in names})
    speed = translate(options.data, options.checkpoint, options.output, decoding, options.subset, options.input)
    print(f"{options.output}.txt: {speed}")


def _add_score(verbs) -> None:
    parser = _verb(verbs, "score", _score, "sacreBLEU of a translation against the raw reference")
    parser.add_argument(
        "--hypotheses",
        type=Path,
        required=True,
        help="OUTPUT.bpe or OUTPUT.tok of `rela translate`, or the H- or D- lines of fairseq-generate",
    )
    parser.add_argument("--reference", type=Path, required=True, help="raw reference text, plain or .gz")
    parser.add_argument("-t", "--target-lang", required=True, help="target language code")
    parser.add_argument("--tokeniser", default="moses", help="of the data: moses or none")
    parser.add_argument("--truecased", action="store_true", help="the data was truecased")
    parser.add_argument("--tokenised-reference", type=Path, help="for tokenised BLEU: text/SUBSET.LANG of the data")
    parser.add_argument("--output", type=Path, help="write the scores as JSON")


def _score(options: argparse.Namespace) -> None:
    from ..experiment.evaluation import score, suspect_order
    from ..experiment.pipeline import describe_score
    from ..files.lines import read_lines
    from ..files.outputs import refuse_overwriting
    from ..files.plain_text import in_order
    from ..files.records import write_json

    tokenised = options.tokenised_reference
    if options.output:
        refuse_overwriting(filter(None, (options.hypotheses, options.reference, tokenised)), [options.output])
    with _holding(options.output):
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


def _add_attention(verbs) -> None:
    parser = _verb(verbs, "attention", _attention, "which attention runs at each site of a model, and how sparse it is")
    parser.add_argument("checkpoint", type=Path, help="a model of this plugin or of fairseq's transformer")
    parser.add_argument("--data", type=Path, required=True, help="data folder")
    parser.add_argument("--subset", default="test", help="subset of the data folder")
    parser.add_argument("--output", type=Path, help="write the figures as JSON")


def _attention(options: argparse.Namespace) -> None:
    from ..register import load_plugin

    load_plugin()
    from ..analysis.analyze import summarise
    from ..experiment.pipeline import describe_attention
    from ..files.outputs import refuse_overwriting
    from ..files.records import write_json

    if options.output:
        refuse_overwriting([options.checkpoint], [options.output])
    with _holding(options.output):
        summary = summarise(options.checkpoint, options.data, options.subset)
        if options.output:
            write_json(options.output, summary)
    print(describe_attention(summary))


def _add_analyze(verbs) -> None:
    parser = _verb(
        verbs, "analyze", _analyze, "sparsity, null rates, head diversity and alignments of all layers and heads"
    )
    parser.add_argument("checkpoint", type=Path, help="a model of this plugin or of fairseq's transformer")
    parser.add_argument("--data", type=Path, required=True, help="its data folder")
    parser.add_argument("--output", type=Path, required=True, help="folder to write analysis.json, examples.json into")
    parser.add_argument("--subset", default="test", help="subset of the data folder")
    parser.add_argument("--gold", type=Path, help="gold word alignment of the subset, for alignment error rates")
    parser.add_argument("--gold-base", type=int, choices=(0, 1), default=0, help="number of the first word in it")
    parser.add_argument("--gold-swapped", action="store_true", help="it has the target word first")
    parser.add_argument("--tags", type=Path, help="a tag for each target word, such as its part of speech")
    parser.add_argument("--source-tags", type=Path, help="the same for source words")
    parser.add_argument("--examples", type=int, default=6, help="sentences of which to keep all weights")
    parser.add_argument(
        "--examples-of", type=_numbers, metavar="N,N", help="these sentences instead, counted from 0, such as 3,17"
    )
    parser.add_argument(
        "--heat-map",
        action="append",
        default=[],
        metavar="HEAD",
        help="draw this head of the sentences of --examples-of, such as cross.layer1.head3 or encoder.layer0.mean, "
        "counted from 0; may be repeated",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the shuffled targets")
    parser.add_argument(
        "--level",
        choices=("words", "pieces"),
        help="of sparsity, null rates and head diversity; both where left out; the paper's is words",
    )
    parser.add_argument(
        "--layer-attention",
        choices=("raw", "normalised"),
        default="raw",
        help="mean over heads that is aligned: of the weights as they are, or of heads whose rows sum to 1",
    )
    _text_pair_options(parser, required=False)


def _text_pair_options(parser: argparse.ArgumentParser, required: bool) -> None:
    instead = "" if required else " instead of a subset; words are those that its spaces separate"
    parser.add_argument("--source", type=Path, required=required, help="source text, raw or tokenised" + instead)
    parser.add_argument("--target", type=Path, required=required, help="its translation, line by line")
    parser.add_argument(
        "--tokenised", action="store_true", help="the text is tokenised as that of the data: apply BPE alone"
    )


def _analyze(options: argparse.Namespace) -> None:
    from ..register import load_plugin

    load_plugin()
    from ..analysis.align import analyze_text
    from ..analysis.analyze import analyze, describe, write
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
    with _holding(options.output / "analysis.json" if options.output.is_dir() else options.output):
        run = partial(analyze_text, **text) if text else partial(analyze, subset=options.subset)
        analysis = run(
            options.checkpoint,
            DataFolder(options.data) if text else options.data,
            gold=options.gold,
            gold_base=options.gold_base,
            gold_reversed=options.gold_swapped,
            tags=options.tags,
            source_tags=options.source_tags,
            seed=options.seed,
            examples=options.examples,
            level=options.level,
            layer_attention=options.layer_attention,
            examples_of=options.examples_of,
        )
        maps = heatmaps.draw(analysis, heads)
        write(analysis, options.output)
        heatmaps.write(maps, options.output / "heatmaps")
    if text:
        print(describe_words(analysis["text"]))
    print(describe(analysis))
    for name in sorted(maps):
        print(options.output / "heatmaps" / name)


def _text_pair(options: argparse.Namespace) -> Dict[str, Any]:
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
    return {"source": options.source, "target": options.target, "tokenised": options.tokenised}


def _add_align(verbs) -> None:
    parser = _verb(verbs, "align", _align, "word links of two text files by the best head of a model")
    parser.add_argument("checkpoint", type=Path, help="a model of this plugin or of fairseq's transformer")
    parser.add_argument("--data", type=Path, help="its data folder (default: the one that the checkpoint names)")
    _text_pair_options(parser, required=True)
    parser.add_argument("--output", type=Path, help="file of links i-j to write, and OUTPUT.json (default: print them)")
    parser.add_argument("--reverse", type=Path, metavar="CHECKPOINT", help="a model from target to source")
    parser.add_argument("--reverse-data", type=Path, help="its data folder (default: the one that it names)")
    parser.add_argument("--head", help="take this head, such as normal.layer1.head3 or shifted.layer0.mean, from 0")


def _align(options: argparse.Namespace) -> None:
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
    with _holding(output):
        alignment = align(
            options.checkpoint,
            options.source,
            options.target,
            options.data,
            tokenised=options.tokenised,
            reverse=options.reverse,
            reverse_data=options.reverse_data,
            head=options.head,
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


def _add_aer(verbs) -> None:
    parser = _verb(verbs, "aer", _aer, "alignment error rate of a word alignment against a gold one")
    parser.add_argument("gold", type=Path, help="links i-j (sure) and ipj (possible), a line a sentence pair")
    parser.add_argument("hypothesis", type=Path, help="links i-j, or A- lines of fairseq-generate")
    parser.add_argument(
        "--gold-base",
        choices=("auto", "0", "1"),
        default="auto",
        help="number of the first word; auto: 1 where none is 0",
    )
    parser.add_argument("--hypothesis-base", choices=("auto", "0", "1"), default="0", help="the same of the hypothesis")
    parser.add_argument("--gold-swapped", action="store_true", help="the gold file has the target word first")
    parser.add_argument("--hypothesis-swapped", action="store_true", help="the hypothesis has the target word first")
    parser.add_argument(
        "--sentences", type=Path, help='the text as "source ||| target", against which links are checked'
    )


def _aer(options: argparse.Namespace) -> None:
    from ..analysis.aer import count, fits_better, guess_base, read_links
    from ..files.lines import read_lines
    from ..files.plain_text import in_order

    lengths = None
    if options.sentences is not None:
        lengths = []
        for number, line in enumerate(read_lines(options.sentences), 1):
            sides = line.split(" ||| ")
            if len(sides) != 2:
                raise InputError(f'{options.sentences}, line {number}: not "source ||| target"')
            lengths.append((len(sides[0].split()), len(sides[1].split())))
    files = []
    same = options.gold.resolve() == options.hypothesis.resolve()  # the same file has the same base
    for path, base, swapped in (
        (options.gold, options.gold_base, options.gold_swapped),
        (options.hypothesis, options.gold_base if same else options.hypothesis_base, options.hypothesis_swapped),
    ):
        lines = in_order(list(read_lines(path)), path, "A")
        first = guess_base(lines) if base == "auto" else int(base)
        if base == "auto":
            print(f"{path}: its words count from {first}", file=sys.stderr)
        files.append(read_links(lines, str(path), first, swapped, lengths))
    hypothesis = [line.possible for line in files[1]]
    print(count(files[0], hypothesis))
    better = fits_better(files[0], hypothesis)
    if better:
        print(f"warning: {better}; are the options for base and side right?", file=sys.stderr)


def _add_rank(verbs) -> None:
    parser = _verb(
        verbs, "rank", _rank, "score sentence pairs by their null rate and log-probability, and keep the best"
    )
    parser.add_argument("checkpoint", type=Path, help="a model of this plugin")
    parser.add_argument("source", type=Path, help="raw source text, plain or .gz")
    parser.add_argument("target", type=Path, help="raw target text")
    parser.add_argument("--data", type=Path, required=True, help="data folder the model was trained on")
    parser.add_argument("--output", type=Path, required=True, help="scores to write, as TSV; kept pairs beside it")
    parser.add_argument("--keep-best", type=_positive, metavar="N", help="write the N best pairs as well")
    parser.add_argument("--max-null-rate", type=float, metavar="X", help="write the pairs up to this null rate as well")
    parser.add_argument(
        "--by",
        choices=("log_probability", "null_rate", "both"),
        default="log_probability",
        help="what is best: a high log-probability a piece, a low null rate, or the mean of both ranks",
    )
    parser.add_argument("--keep-worst", type=_positive, metavar="N", help="write the N worst pairs as well")
    parser.add_argument("--sample", type=_positive, metavar="N", help="write N pairs drawn at random as well")
    parser.add_argument("--workers", type=_positive, help="processes (default: all cores)")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    parser.add_argument("--max-tokens", type=_positive, default=4096, help="padded pieces in a batch")
    parser.add_argument(
        "--damage", action="store_true", help="instead: damage a third of the pairs in known ways; how well each shows"
    )
    parser.add_argument(
        "--more-checkpoints",
        type=Path,
        nargs="+",
        default=[],
        metavar="CHECKPOINT",
        help="with --damage: models of other seeds, for means and paired differences",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the damage, and of --sample")


def _rank(options: argparse.Namespace) -> None:
    from ..register import load_plugin

    load_plugin()
    texts = (options.checkpoint, options.data, options.source, options.target, options.output)
    if options.damage:
        from ..analysis.damage import describe, evaluate_models
        from ..analysis.rank import refuse_swapped
        from ..data.folder import DataFolder
        from ..files.plain_text import refuse_not_text

        kept = (options.keep_best, options.max_null_rate, options.keep_worst, options.sample)
        if any(value is not None for value in kept):
            raise InputError(
                "--damage measures, it keeps nothing: leave --keep-best, --max-null-rate, --keep-worst and --sample out"
            )
        refuse_swapped(options.source, options.target, DataFolder(options.data).settings)
        for path in (options.source, options.target):
            refuse_not_text(path)
        with _holding(options.output):
            result = evaluate_models(
                [options.checkpoint, *options.more_checkpoints],
                *texts[1:],
                seed=options.seed,
                device=options.device,
                max_tokens=options.max_tokens,
            )
        print(describe(result))
        return
    if options.more_checkpoints:
        raise InputError("--more-checkpoints: only --damage measures several models; rank by one")
    from ..analysis.rank import rank

    rank(
        *texts,
        keep_best=options.keep_best,
        max_null_rate=options.max_null_rate,
        workers=options.workers,
        device=options.device,
        max_tokens=options.max_tokens,
        by=options.by,
        keep_worst=options.keep_worst,
        sample=options.sample,
        seed=options.seed,
    )


def _add_report(verbs) -> None:
    parser = _verb(verbs, "report", _report, "one HTML page that shows runs side by side and beside the paper")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run: experiments/TASK/ATTENTION")
    parser.add_argument(
        "--output", type=Path, default=Path("report.html"), help="page to write; figures go into a folder beside it"
    )
    parser.add_argument("--benchmark", type=Path, help="what `rela bench` wrote, for Figure 2 and Table 2")
    parser.add_argument(
        "--ranking",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="outputs of `rela rank` with --keep-best, --keep-worst or --sample, to be shown",
    )


def _report(options: argparse.Namespace) -> None:
    from ..report.page import write_report

    benchmark = options.benchmark
    if benchmark is not None and benchmark.is_dir():
        benchmark = benchmark / "benchmark.json"
    write_report(options.runs, options.output, benchmark, options.ranking)
    print(f"{options.output}: open it in a browser; it needs no network")


def _add_reproduce(verbs) -> None:
    parser = _verb(verbs, "reproduce", _reproduce, "the whole chain of a task, or some of its stages")
    parser.add_argument("task", help="a task of configs/")
    parser.add_argument("attention", nargs="?", default="rela_g", help="a variant of Table 1")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(_STAGES)}; all where none is given")
    parser.add_argument("--raw", type=Path, help="a folder with the raw corpus, instead of fetching it")
    parser.add_argument(
        "--gold-alignment",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="for analyze: a folder with sentences and gold word links of the languages, such as test.de-en and "
        "deen.talp; or its files, each by an option of its own",
    )
    _root_option(parser)
    _source_options(parser)
    _text_options(parser)
    _override_option(parser)


def _reproduce(options: argparse.Namespace) -> None:
    from ..experiment.pipeline import Experiment, reproduce, table

    experiment = Experiment(
        task=options.task,
        attention=options.attention,
        root=options.root,
        raw=options.raw,
        overrides=tuple(options.override),
        workers=options.workers,
        choose=tuple(options.choose),
        offline=options.offline,
        moses=options.moses,
        gold_alignment=tuple(options.gold_alignment),
    )
    if options.attention in _STAGES and options.attention != "attention":
        raise InputError(f"give the attention before the stages: {options.task} rela_g {options.attention} ...")
    stages: List[str] = options.stages or list(_STAGES)
    reproduce(experiment, stages)
    if "attention" in stages and "score" in stages:
        print("\n" + table([experiment]))


def _add_study(verbs) -> None:
    parser = _verb(verbs, "study", _study, "train, measure and compare the rows of a study over several seeds")
    parser.add_argument("name", help="a study of configs/study/")
    parser.add_argument("--jobs", type=_positive, default=1, help="runs at a time, a thread each where more than one")
    parser.add_argument(
        "--only", action="append", default=[], metavar="LABEL", help="only the runs of this row; may be repeated"
    )
    parser.add_argument(
        "--run", dest="index", type=int, metavar="INDEX", help="one run, as --list numbers them, and no collecting"
    )
    parser.add_argument("--list", action="store_true", help="show the runs and their state, and do nothing")
    parser.add_argument("--collect", action="store_true", help="train nothing; tables and figures of what is done")
    parser.add_argument("--output", type=Path, default=Path("studies"), help="where the folder NAME is made")
    parser.add_argument("--raw", type=Path, help="a folder with the raw corpus, for tasks that are not downloaded")
    parser.add_argument("--workers", type=_positive, help="processes for the text (default: all cores)")
    _root_option(parser)
    _override_option(parser)


def _study(options: argparse.Namespace) -> None:
    from ..study import queue
    from ..study.collect import collect
    from ..study.docs import fill_documents
    from ..study.page import write_study
    from ..study.runs import Places, finished, perform
    from ..study.spec import load_study

    study = load_study(options.name, tuple(options.override))
    places = Places(options.root, options.output / study.name, options.raw, options.workers)
    jobs = queue.select(study, options.only)
    if options.list:
        for job in jobs:
            record = finished(study, job, places)
            print(study.jobs.index(job), job.name, record["state"] if record else "-", sep="\t")
        return
    if options.index is not None:
        if not 0 <= options.index < len(study.jobs):
            raise InputError(f"--run {options.index}: {study.name} has the runs 0 to {len(study.jobs) - 1}")
        with _holding(places.record(study.jobs[options.index])):
            queue.prepare_data(study, places)
            perform(study, study.jobs[options.index], places)
        return
    try:
        if not options.collect:
            queue.prepare_data(study, places)
            queue.run_queue(study, jobs, options.jobs, _this_command(options), places)
    finally:
        if any(places.record(job).is_file() for job in study.jobs):
            with _holding(places.output / "study.json"):
                collected = collect(study, places)
                write_study(collected, places.output)
                changed = fill_documents(collected, places.output.resolve().parent.parent)
            print(f"{places.output}: study.json, tables, page and figures", *changed, sep="\n")


def _this_command(options: argparse.Namespace) -> List[str]:
    """Return the command that performs one run of a study; the caller adds ``--run INDEX``."""
    raw = [] if options.raw is None else ["--raw", str(options.raw)]
    overrides = [word for override in options.override for word in ("--override", override)]
    places = ["--root", str(options.root), "--output", str(options.output)]
    return [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "fairseq_rela.cli",
        "study",
        options.name,
        *places,
        *raw,
        *overrides,
    ]


def _root_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", type=Path, default=Path("experiments"), help="folder for data and runs")


def _source_options(parser: argparse.ArgumentParser) -> None:
    _choose_option(parser)
    parser.add_argument("--offline", type=Path, metavar="FOLDER", help="fetch nothing: the archives lie in this folder")


def _choose_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--choose",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="other data where the task offers a choice, such as train=stanford; may be repeated",
    )


def _text_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=_positive, help="processes for the text (default: all cores)")
    parser.add_argument(
        "--moses", type=Path, metavar="FOLDER", help="a checkout of Moses, whose scripts then normalise and tokenise"
    )


def _override_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of the Hydra configuration, such as optimization.max_epoch=3; may be repeated",
    )


def _holding(output: Optional[Path]) -> ContextManager[None]:
    """Return a context manager that locks an output against other processes; for None it does nothing."""
    if output is None or not output.name:
        return nullcontext()
    from ..files.locks import only_process

    return only_process(output, "written")


def _numbers(text: str) -> List[int]:
    numbers = [part.strip() for part in text.split(",")]
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        raise argparse.ArgumentTypeError(f"{text}: give numbers from 0 with commas between, such as 3,17")
    return list(dict.fromkeys(map(int, numbers)))


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a number of at least 1")
    return int(text)


def _add_bench(verbs) -> None:
    parser = _verb(verbs, "bench", _bench, "time the variants against fairseq's softmax, side by side")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to run")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds: four minutes on two cores")
    parser.add_argument(
        "--parts",
        help="some of core,training,decoding,parameters,flops (default: all; with --checkpoints decoding, with --data "
        "alone training)",
    )
    parser.add_argument("--lengths", help="of the core, such as 1024,8192 (default: 16 to 8192, to 512 where quick)")
    parser.add_argument("--threads", type=_positive, help="of the CPU (default: torch's choice)")
    parser.add_argument("--name", help="folder in --output (default: the device, and -quick)")
    parser.add_argument("--output", type=Path, default=Path("benchmarks"), help="where the folder is made")
    parser.add_argument("--no-figures", action="store_true", help="only write benchmark.json")
    parser.add_argument("--data", type=Path, help="data folder: train on its text (Table 2), or decode its test set")
    trained = parser.add_argument_group("trained models on a test set (Figure 2)")
    trained.add_argument(
        "--checkpoints", type=Path, nargs="+", metavar="CHECKPOINT", help="to decode with, one of them with softmax"
    )
    trained.add_argument("--subset", help="subset of the data folder (default: test)")
    trained.add_argument("--batches", help="sentences at a time (default: 1,16; 1,64 on a GPU)")
    trained.add_argument("--rounds", type=_positive, help="times each group is decoded (default: 3)")
    trained.add_argument(
        "--sentences", type=_positive, metavar="N", help="of each of the ten groups (default: all; 20 where --quick)"
    )
    text = parser.add_argument_group("training on real text (Table 2)")
    text.add_argument("--attention", nargs="+", metavar="NAME", help="variants (default: those of Table 2)")
    text.add_argument("--steps", type=_positive, metavar="N", help="updates (default: 500; 50 where --quick)")
    text.add_argument("--max-tokens", type=_positive, metavar="N", help="padded pieces in a batch")


def _bench(options: argparse.Namespace) -> None:
    import logging
    import warnings

    from ..register import load_plugin

    load_plugin()
    logging.getLogger("fairseq_rela.attention").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*mismatched key_padding_mask")  # from torch, in fairseq's attention
    from ..benchmark.figures import draw
    from ..benchmark.run import make_plan, run, text

    trained, real, parts = _bench_requests(options)
    kind = "-trained" if trained is not None else "-data" if real is not None else ""
    name = options.name or options.device + ("-quick" if options.quick else "") + kind
    folder = options.output / name
    try:
        lengths = [_positive(length.strip()) for length in options.lengths.split(",")] if options.lengths else None
    except argparse.ArgumentTypeError as error:
        raise InputError(f"--lengths {error}") from error
    plan = make_plan(options.device, options.quick, lengths)
    result = run(
        folder, plan, options.device, parts, options.threads, lambda line: print(line, flush=True), trained, real
    )
    print(text(result))
    drawn = [] if options.no_figures else draw(result, folder)
    print(f"{folder}: benchmark.json" + (" and figures" if drawn else ""))


def _bench_requests(options: argparse.Namespace) -> Tuple[Any, Any, List[str]]:
    """Return the decoding request, the training request (each None if not requested), and the benchmark parts.

    Raises:
        InputError: an option needs another option that is not given, or ``--batches`` is not a list of numbers.
    """
    from ..benchmark import real_text, trained
    from ..benchmark.run import PARTS

    usual = ("decoding",) if options.checkpoints else ("training",) if options.data else PARTS
    parts = [part.strip() for part in options.parts.split(",")] if options.parts else list(usual)
    training = options.data is not None and "training" in parts
    for name, needs, there in (
        *((name, "--checkpoints", options.checkpoints) for name in ("subset", "batches", "rounds", "sentences")),
        *((name, "--data and the part training", training) for name in ("attention", "steps", "max_tokens")),
        ("checkpoints", "--data and the part decoding", options.data is not None and "decoding" in parts),
        ("data", "the part training, or --checkpoints", training or options.checkpoints),
    ):
        if getattr(options, name) is not None and not there:
            raise InputError(f"--{name.replace('_', '-')} needs {needs}; give it as well")
    decode = real = None
    if options.checkpoints:
        try:
            batches = [_positive(text.strip()) for text in (options.batches or "1,16").split(",")]
        except argparse.ArgumentTypeError as error:
            raise InputError(f"--batches {error}") from error
        if options.batches is None and options.device == "cuda":
            batches = [1, 64]
        sentences = options.sentences or (20 if options.quick else None)
        decode = trained.Request(
            options.checkpoints, options.data, options.subset or "test", batches, options.rounds or 3, sentences
        )
    if training:
        steps = options.steps or (50 if options.quick else real_text.STEPS)
        names = tuple(options.attention or real_text.Request._field_defaults["attention"])
        real = real_text.Request(options.data, names, steps, options.max_tokens)
    return decode, real, parts


def _add_user_dir(verbs) -> None:
    _verb(verbs, "user-dir", _user_dir, "print the folder that fairseq's --user-dir takes")


def _user_dir(options: argparse.Namespace) -> None:
    from ..files.commands import USER_DIR

    print(USER_DIR)


if __name__ == "__main__":
    sys.exit(main())
