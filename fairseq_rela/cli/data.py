"""The verbs that make data: ``download``, ``synthetic``, ``prepare``."""

from pathlib import Path

from ..errors import InputError
from ..files.configs import load_defaults
from .arguments import Options, Parser, add_shared, flag, given, locked


def _download_options(parser: Parser) -> None:
    add_shared(parser, "task")
    parser.add_argument("--list", action="store_true", help="only print names and addresses, to fetch files by hand")
    add_shared(parser, "--root", "--choose", "--offline")


def _download(options: Options) -> None:
    """Fetch the archives of a task, verify them, and extract its raw text."""
    from ..experiment.experiment import Experiment
    from ..experiment.reproduce import reproduce

    experiment = Experiment(
        options.task, "softmax", options.root, choose=tuple(options.choose), offline=options.offline
    )
    task = experiment.spec
    if task.sources is None:
        raise InputError(
            f"{options.task} has no downloads; `rela reproduce` generates its text, or takes it from --raw FOLDER"
        )
    if options.list:
        for name, download in task.downloads.items():
            for mirror in download.mirrors:
                print(name, *mirror.parts, sep="\t")
        return
    reproduce(experiment, ("download", "extract"))


def _synthetic_options(parser: Parser) -> None:
    parser.add_argument("output", type=Path, help="folder to write")
    add_shared(parser, "--seed", help="the same seed gives the same corpus")
    parser.add_argument("--pairs", type=int, default=5000, help="training pairs")


def _synthetic(options: Options) -> None:
    """Generate a small parallel corpus with its gold word alignment."""
    from ..corpora.synthetic import write_corpus

    with locked(options.output):
        sizes = write_corpus(options.output, options.seed, options.pairs)
    print(f"{options.output}: " + ", ".join(f"{split} {size:,} pairs" for split, size in sizes.items()))


_SPLITS = ("train", "valid", "test")


def _prepare_options(parser: Parser) -> None:
    parser.add_argument("--config", help="a task of configs/, whose files and settings are used")
    parser.add_argument("--raw", type=Path, help="with --config: the folder with the raw corpus")
    for split in _SPLITS:
        parser.add_argument(
            f"--{split}", type=Path, metavar="PREFIX", help=f"{split} files PREFIX.SOURCE and PREFIX.TARGET, or .gz"
        )
    parser.add_argument("-s", "--source-lang", help="source language code")
    parser.add_argument("-t", "--target-lang", help="target language code")
    parser.add_argument("--output", type=Path, required=True, help="data folder to make")
    _settings_options(parser)
    add_shared(parser, "--choose", "--workers", "--moses")


def _settings_options(parser: Parser) -> None:
    """Add the options for the fields of ``Settings``; one that is not given is None, and the task's value stays."""
    default = load_defaults("preparation")
    parser.add_argument(
        "--tokeniser",
        help=f"moses (Chinese: jieba), or none for tokenised text (default: {default['tokeniser']})",
    )
    parser.add_argument(
        "--tokenised", action="append", metavar="SPLIT", help="a split that is already tokenised; may be repeated"
    )
    for name, kind, text in (
        ("max_tokens", int, "drop training pairs with more tokens than this on a side"),
        (
            "max_ratio",
            float,
            "drop training pairs in which a side has more than this many times the tokens of the other",
        ),
        ("max_pieces", int, "drop training pairs with more BPE pieces than this on a side"),
        ("merges", int, "number of joint BPE merges"),
        ("vocabulary_threshold", int, "minimum frequency of a piece in the training text of its language"),
    ):
        parser.add_argument(flag(name), type=kind, help=f"{text} (default: {default[name]})")
    for name, text in (
        ("truecase", "learn and apply Moses' truecasing"),
        ("remove_diacritics", "remove the diacritics of Romanian"),
        ("normalise_width", "replace full-width Latin letters and digits, as in Chinese text, by those of ASCII"),
        ("remove_duplicates", "drop training pairs whose tokens are the same as those of an earlier pair"),
    ):
        parser.add_argument(flag(name), action="store_true", default=None, help=text)


def _prepare(options: Options) -> None:
    """Prepare raw parallel text: normalise, tokenise, clean, apply BPE, and binarise."""
    from dataclasses import fields, replace

    from ..data.corpus import Corpus
    from ..data.prepare import describe, prepare
    from ..data.settings import Settings
    from ..experiment.tasks import load_task

    names = {"source_lang", "target_lang"}
    changes = given(options, *(field.name for field in fields(Settings) if field.name not in names))
    if options.config:
        for name in given(options, *sorted(names), *_SPLITS):
            raise InputError(f"--config names languages and files: leave {flag(name)} out")
        if options.raw is None:
            raise InputError("--config needs --raw FOLDER, the folder with the raw corpus")
        task = load_task(options.config, tuple(options.choose))
        settings = replace(task.settings, **changes)
        corpus = task.corpus(options.raw)
    else:
        if options.raw is not None or options.choose:
            raise InputError("--raw and --choose go with --config; give --train, --valid and --test instead")
        if not options.source_lang or not options.target_lang:
            raise InputError("give --source-lang and --target-lang, or --config")
        settings = Settings(options.source_lang, options.target_lang, **changes)
        prefixes = given(options, *_SPLITS)
        corpus = Corpus(
            {s: tuple(_plain_or_gz(prefixes[s], lang) for lang in settings.languages) for s in prefixes},
        )
    print(describe(prepare(corpus, settings, options.output, options.workers, options.moses)))


def _plain_or_gz(prefix: Path, lang: str) -> Path:
    plain, packed = Path(f"{prefix}.{lang}"), Path(f"{prefix}.{lang}.gz")
    return packed if packed.is_file() and not plain.is_file() else plain


VERBS = {
    "download": (_download_options, _download),
    "synthetic": (_synthetic_options, _synthetic),
    "prepare": (_prepare_options, _prepare),
}
