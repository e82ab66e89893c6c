"""The verbs that make a model: ``train``, ``average``; and ``user-dir`` for training with fairseq's own command."""

from pathlib import Path

from ..errors import InputError
from ..files.configs import load_defaults
from .arguments import Options, Parser, add_shared, locked


def _train_options(parser: Parser) -> None:
    add_shared(parser, "task")
    parser.add_argument(
        "--attention", default=load_defaults("experiment")["attention"], help="name of a variant, such as softmax"
    )
    add_shared(parser, "--data", help="data folder of `rela prepare`")
    parser.add_argument("--save-dir", type=Path, required=True, help="folder for the checkpoints")
    add_shared(parser, "--override")


def _train(options: Options) -> None:
    """Train with fairseq-hydra-train and a shipped configuration."""
    from ..experiment.training import train

    train(options.task, options.attention, options.data, options.save_dir, options.override)


def _average_options(parser: Parser) -> None:
    parser.add_argument("run_dir", type=Path, nargs="?", help="folder with the checkpoints")
    parser.add_argument(
        "--last",
        type=int,
        default=load_defaults("experiment")["averaged"],
        help="number of checkpoints, chosen by the update numbers inside the files",
    )
    parser.add_argument("--inputs", type=Path, nargs="+", help="average these files instead")
    parser.add_argument("--output", type=Path, required=True, help="file to write")


def _average(options: Options) -> None:
    """Average the last checkpoints of a run."""
    from .. import checkpoints
    from ..experiment.averaging import average_last

    if (options.run_dir is None) == (options.inputs is None):
        raise InputError("give the folder of a run, or --inputs with files; one of them")
    if options.inputs is None:
        average_last(options.run_dir, options.last, options.output)
        return
    with locked(options.output):
        checkpoints.average(options.inputs, options.output)
    for path in options.inputs:
        print(f"update {checkpoints.updates_of(checkpoints.load(path)):,}: {path}")
    print(f"{options.output}: the mean of {len(options.inputs)} checkpoints")


def _user_dir(options: Options) -> None:
    """Print the folder that fairseq's --user-dir takes."""
    from ..user_dir import user_dir

    print(user_dir())


VERBS = {
    "train": (_train_options, _train),
    "average": (_average_options, _average),
    "user-dir": (lambda parser: None, _user_dir),
}
