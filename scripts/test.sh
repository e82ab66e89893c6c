#!/usr/bin/env bash
# ruff, then every test, the slow ones too. Arguments go to pytest: scripts/test.sh -m "not slow"
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$ROOT"
ruff check .
ruff format --check .
exec python -m pytest "$@"
