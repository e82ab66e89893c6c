#!/usr/bin/env bash
# From nothing to a trained and scored ReLA model on a generated corpus, in a few minutes on two cores.
# A second run reuses what is done. PYTHON chooses the Python (3.11 or 3.12).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$ROOT"

rela reproduce synthetic rela_g

cat <<'NEXT'

What to try next:
  scripts/reproduce.sh synthetic softmax        the same with fairseq's own attention
  scripts/reproduce.sh multi30k_en_de rela_g --raw FOLDER     real text, from your copy of Multi30k
  .venv/bin/rela translate experiments/synthetic/data --checkpoint experiments/synthetic/rela_g/average.pt \
      --input experiments/synthetic/raw/test.xa --output /tmp/out && head /tmp/out.txt
  README.md: ReLA in your own fairseq command, all variants, your own corpus
NEXT
