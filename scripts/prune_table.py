#!/usr/bin/env python3
"""Measure BLEU, parameters and decoding speed of pruned models against the share of heads removed.

    python scripts/prune_table.py --data DATA --output FOLDER CHECKPOINT...
    python scripts/prune_table.py --output FOLDER       # only make the table and the figure again

The checkpoints are of transformer_rela with one attention at all sites, such as softmax and rela_g with several seeds
each. Heads are removed by null rate, by loss and at random. Every pruned model has a file in FOLDER/points/, and one
that is there is not measured again, so an interrupted run goes on. FOLDER/pruning.json has the results, pruning.md the
tables and pruning.png the figure.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairseq_rela.errors import InputError
from fairseq_rela.register import load_plugin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", type=Path, nargs="*")
    parser.add_argument("--data", type=Path, help="data folder of `rela prepare`")
    parser.add_argument("--output", type=Path, required=True, help="folder for the results")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.25, 0.5, 0.75, 0.1], help="of heads to remove")
    parser.add_argument("--draws", type=int, default=3, help="number of random draws for each model and share")
    parser.add_argument("--beam", type=int, help="size of the beam (default: that of `rela translate`)")
    options = parser.parse_args()
    load_plugin()
    from fairseq_rela.pruning.table import measure, write_results

    try:
        if options.checkpoints:
            if options.data is None:
                raise InputError("--data is missing; give the data folder of the checkpoints")
            search = {} if options.beam is None else {"beam": options.beam}
            measure(options.checkpoints, options.data, options.output, options.shares, options.draws, **search)
        write_results(options.output)
    except InputError as error:
        print(f"prune_table: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
