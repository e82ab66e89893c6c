#!/usr/bin/env bash
# Run ruff, mypy, and all tests including the slow ones. Arguments are passed to pytest: scripts/test.sh -m "not slow"
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$ROOT"
add_docs_tools
ruff check .
ruff format --check .
python -m mypy
# one process for each core; a process without tests takes some of the others
exec python -m pytest -n auto --dist worksteal "$@"
