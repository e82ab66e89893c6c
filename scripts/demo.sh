#!/usr/bin/env bash
# Train, score and analyse a softmax and a ReLA-g model on a generated corpus, and compare them on one page. This takes
# about 8 minutes on two cores. A second run reuses the results. PYTHON is the Python to use (3.11 or 3.12).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$ROOT"

rela reproduce synthetic softmax
rela reproduce synthetic rela_g
rela report experiments/synthetic/softmax experiments/synthetic/rela_g --output experiments/synthetic/report.html

cat <<'NEXT'

What to try next:
  scripts/reproduce.sh synthetic entmax15       another variant; name it in `rela report` to see it beside these
  scripts/reproduce.sh multi30k_en_de rela_g --raw FOLDER     real text, from your copy of Multi30k
  .venv/bin/rela translate experiments/synthetic/data --checkpoint experiments/synthetic/rela_g/average.pt \
      --input experiments/synthetic/raw/test.xa --output /tmp/out && head /tmp/out.txt
  docs/getting-started.md: the next steps; docs/fairseq.md: ReLA in your own fairseq command
NEXT
