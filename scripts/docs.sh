#!/usr/bin/env bash
# Build the documentation into site/. A broken link or a missing docstring is an error.
# Arguments are passed to mkdocs: scripts/docs.sh --site-dir FOLDER
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$ROOT"
add_docs_tools
# hides a message of the theme about a new version of mkdocs
export NO_MKDOCS_2_WARNING=true
exec python -m mkdocs build --strict --quiet "$@"
