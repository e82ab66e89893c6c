#!/usr/bin/env bash
# ruff, mypy, then every test, the slow ones too. Arguments go to pytest: scripts/test.sh -m "not slow"
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$ROOT"
add_docs_tools
ruff check .
ruff format --check .
python -m mypy
# a process for each core; one that has run out of tests takes over others'
exec python -m pytest -n auto --dist worksteal "$@"
