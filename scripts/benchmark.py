#!/usr/bin/env python3
"""Run ``rela bench`` in a checkout, such as scripts/benchmark.py --quick."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
arguments, sys.argv = sys.argv[1:], ["rela", "bench", *sys.argv[1:]]

from fairseq_rela.cli import main  # noqa: E402

sys.exit(main(["bench", *arguments]))
