#!/usr/bin/env bash
# Build the documentation into site/; a broken link or a missing docstring ends it. Arguments go to mkdocs:
# scripts/docs.sh --site-dir FOLDER
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$ROOT"
add_docs_tools
# the theme's advertisement for its makers' other product is of no use here
export NO_MKDOCS_2_WARNING=true
exec python -m mkdocs build --strict --quiet "$@"
