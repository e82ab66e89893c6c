#!/usr/bin/env python3
"""Make silver word alignments of the test set of a data folder with eflomal, for `rela analyze --gold` and `rela aer`.

    pip install eflomal                                                   # compiles C; takes half a minute
    python scripts/silver_alignment.py DATA --output silver.test.talp     # DATA of `rela prepare`
    rela analyze CHECKPOINT --data DATA --gold silver.test.talp --output ANALYSIS

This writes silver.test.talp (i-j: a link in both directions, ipj: a link that grow-diag-final adds) and
silver.test.talp.json (its data, counts and versions). eflomal takes no seed, so a second run differs in a few links.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairseq_rela.analysis.silver import write_silver
from fairseq_rela.errors import InputError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="data folder of `rela prepare`")
    parser.add_argument("--output", type=Path, required=True, help="file to write, with silver in its name")
    parser.add_argument("--subset", default="test", help="train, valid or test (default)")
    parser.add_argument(
        "--sentences",
        type=Path,
        help='also align these pairs, "source ||| target", and write only their links',
    )
    options = parser.parse_args()
    try:
        record = write_silver(options.data, options.output, options.subset, options.sentences)
    except InputError as error:
        print(f"silver_alignment: error: {error}", file=sys.stderr)
        return 2
    links = record["links"]
    print(
        f"{options.output}: {record['sentences']:,} sentences, {links['sure']:,} sure and {links['possible']:,} "
        f"possible silver links; trained on {sum(record['trained_on'].values()):,} pairs"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
