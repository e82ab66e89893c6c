#!/usr/bin/env python3
"""Measure what remains of a trained softmax model when its parameters start other attentions.

    python scripts/from_softmax.py TASK CHECKPOINT --data DATA --output FOLDER

TASK is a file of configs/ such as multi30k_en_de, with which the model CHECKPOINT was trained on the data folder DATA.
Each attention starts from the checkpoint (--finetune-from-model), once with a single update at a learning rate of 0,
which leaves the parameters as they are, and once with --updates updates. The loss of the development set and BLEU of
the test set go to FOLDER/from_softmax.json, and to FOLDER/from_softmax.md as a table. A model that is there is not
trained again, and an interrupted run goes on.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairseq_rela import checkpoints
from fairseq_rela.data.folder import DataFolder
from fairseq_rela.errors import InputError
from fairseq_rela.files.machine import processor, versions
from fairseq_rela.files.outputs import write_whole
from fairseq_rela.files.records import is_done, read_json, sha256, write_json

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="data folder of `rela prepare`")
    parser.add_argument("--output", type=Path, required=True, help="folder for the models and the results")
    parser.add_argument("--attentions", nargs="+", default=["softmax", "rela_g", "rela_i", "relu"])
    parser.add_argument("--updates", type=int, default=45, help="(default: 45, a third of an epoch of Multi30k)")
    parser.add_argument("--lr", type=float, default=0.0015, help="highest learning rate (default: 0.0015)")
    options = parser.parse_args()
    try:
        rows = [
            measure(options, attention, updates) for attention in options.attentions for updates in (0, options.updates)
        ]
    except (InputError, subprocess.CalledProcessError) as error:
        print(f"from_softmax: error: {error}", file=sys.stderr)
        return 2
    about = {"task": options.task, "checkpoint_sha256": sha256(options.checkpoint), "lr": options.lr}
    machine = {"processor": processor(), "versions": versions(["torch", "ve-fairseq", "sacrebleu"])}
    write_json(options.output / "from_softmax.json", {**about, "rows": rows, **machine})
    with write_whole(options.output / "from_softmax.md") as file:
        file.write(markdown(rows))
    return 0


def measure(options: argparse.Namespace, attention: str, updates: int) -> Dict[str, Any]:
    """Train one model, translate the test set, and return its row of the table."""
    folder = options.output / f"{attention}.{updates}-updates"
    made_of = {"task": options.task, "checkpoint": sha256(options.checkpoint), "lr": options.lr}
    made_of["data"] = sha256(options.data / "prepare.json")
    if not is_done(folder / "made_of.json", made_of):
        write_json(folder / "made_of.json", {"made_of": made_of})
    last, translation = folder / "checkpoint_last.pt", folder / "test"
    if not last.is_file() or checkpoints.updates_of(checkpoints.load(last)) < updates:
        train(options, attention, updates, folder)
    if not (folder / "scores.json").is_file():
        data = DataFolder(options.data)
        target = data.settings.target_lang
        rela("translate", options.data, "--checkpoint", last, "--output", translation)
        rela(
            *("score", "--hypotheses", f"{translation}.bpe", "--reference", data.path / "raw" / f"test.{target}"),
            *("-t", target, "--tokeniser", data.settings.tokeniser, "--output", folder / "scores.json"),
        )
    scores = read_json(folder / "scores.json")
    state = checkpoints.load(last)
    return {
        **{"attention": attention, "updates": updates, "seed": int(state["cfg"]["common"]["seed"])},
        **{"loss": state["extra_state"]["val_loss"], "bleu": scores["bleu"], "signature": scores["signature"]},
    }


def train(options: argparse.Namespace, attention: str, updates: int, folder: Path) -> None:
    """Start a model from the checkpoint, and train it."""
    lr = options.lr if updates else 0
    warmup = max(updates // 3, 1)
    folder.mkdir(parents=True, exist_ok=True)
    seed = checkpoints.load(options.checkpoint)["cfg"]["common"]["seed"]
    call(
        "fairseq_cli.hydra_train",
        *("--config-dir", ROOT / "configs", "--config-name", options.task),
        *(f"attention={attention}", f"common.user_dir={ROOT / 'fairseq_rela'}", f"common.seed={seed}"),
        *(f"task.data={options.data.resolve()}", f"checkpoint.save_dir={folder.resolve()}"),
        *(f"checkpoint.finetune_from_model={options.checkpoint.resolve()}", f"hydra.run.dir={folder.resolve()}"),
        *(f"optimization.max_update={max(updates, 1)}", f"optimization.lr=[{lr}]"),
        *(f"lr_scheduler.warmup_updates={warmup}", f"lr_scheduler.warmup_init_lr={lr / warmup}"),
    )


def markdown(rows: List[Dict[str, Any]]) -> str:
    """Return the table of the rows."""
    lines = ["| attention | updates | loss | BLEU |", "|---|---:|---:|---:|"]
    lines += [f"| `{row['attention']}` | {row['updates']} | {row['loss']:.2f} | {row['bleu']:.1f} |" for row in rows]
    return "\n".join(lines) + "\n"


def rela(*arguments: Any) -> None:
    """Run a verb of `rela`."""
    call("fairseq_rela.cli", *arguments)


def call(module: str, *arguments: Any) -> None:
    """Print the command of a module and run it."""
    words = [sys.executable, "-W", "ignore", "-m", module, *map(str, arguments)]
    print(" ".join(words), flush=True)
    subprocess.run(words, check=True)


if __name__ == "__main__":
    sys.exit(main())
