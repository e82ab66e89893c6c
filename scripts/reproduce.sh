#!/usr/bin/env bash
# Run all stages of a task, from raw text to BLEU, or some of them:
# scripts/reproduce.sh TASK [ATTENTION] [STAGE ...] [--raw FOLDER]
# Tasks are the YAML files at the top of configs/, attentions those in configs/attention/.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
exec rela reproduce "$@"
