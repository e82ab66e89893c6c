#!/usr/bin/env bash
# scripts/reproduce.sh TASK [ATTENTION] [STAGE ...] [--raw FOLDER]: from raw text to BLEU, or some stages of it.
# Tasks are the YAML files at the top of configs/, attentions those of configs/attention/.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
exec rela reproduce "$@"
