# Make the project's environment, .venv, if there is none, and put it on PATH. The other scripts source this file.
#
#   PYTHON  a Python 3.11 or 3.12 (default: the first such one among python3.11, python3.12, python3)
#   VENV    folder of the environment (default: .venv in this checkout)

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=${VENV:-$ROOT/.venv}
unset PYTHONPATH PYTHONHOME
# if this environment is activated, its Python must not be used to make it again
PATH=$(printf '%s' "$PATH" | tr ':' '\n' | grep -vxF "$VENV/bin" | paste -sd ':')

fail() {
    echo "$(basename "$0"): error: $*" >&2
    exit 2
}

supported() {
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" >/dev/null || fail "PYTHON=$PYTHON: no such program; set PYTHON to a Python 3.11 or 3.12"
        case $(command -v "$PYTHON") in
            "$VENV"/*) fail "PYTHON=$PYTHON lies in $VENV, which this script makes; set PYTHON to another Python" ;;
        esac
        supported "$PYTHON" || fail "$("$PYTHON" --version 2>&1) is not supported: set PYTHON to a Python 3.11 or 3.12"
        return
    fi
    for PYTHON in python3.11 python3.12 python3; do
        if command -v "$PYTHON" >/dev/null && supported "$PYTHON"; then return; fi
    done
    fail "no Python 3.11 or 3.12 found; install one, or set PYTHON to it"
}

# Print the content of .venv/.fairseq-rela: a checksum of the Python and of the requirements that were installed.
wanted_stamp() {
    { "$PYTHON" --version; cat "$ROOT/requirements.txt" "$ROOT/requirements-fairseq.txt"; echo "$ROOT"; } | sha256sum
}

# Print the free space for a folder, which may not exist yet, in megabytes.
room() {
    local folder=$1
    until [ -d "$folder" ]; do folder=$(dirname "$folder"); done
    df -Pm "$folder" | awk 'NR == 2 { print $4 }'
}

# The environment takes at most 2.4 GB with PyTorch for the CPU and 8.1 GB with CUDA, including files in TMPDIR.
check_room() { # folder megabytes
    local free
    free=$(room "$1")
    [ "$free" -ge "$2" ] ||
        fail "$1: $free MB are free, $2 are needed (and three times that if pip takes PyTorch for CUDA);" \
            "make room, or set VENV and TMPDIR to folders with enough space"
}

# Remove an incomplete environment, which may have filled the disk, and end with an error.
give_up() {
    local free
    free=$(room "$VENV")
    rm -rf "$VENV"
    fail "$1 failed; see above ($free MB were free for $VENV, $(room "${TMPDIR:-/tmp}") MB for ${TMPDIR:-/tmp})"
}

make_environment() {
    find_python
    if [ -e "$VENV" ] && [ ! -e "$VENV/.fairseq-rela" ]; then
        fail "$VENV was not made by these scripts and is not changed; move it away, or set VENV to another folder"
    fi
    if [ -e "$VENV" ] && [ "$(cat "$VENV/.fairseq-rela")" = "$(wanted_stamp)" ]; then return; fi
    rm -rf "$VENV"
    check_room "$VENV" 2500
    check_room "${TMPDIR:-/tmp}" 500
    echo "making $VENV with $("$PYTHON" --version 2>&1); the first time this downloads PyTorch" >&2
    mkdir -p "$VENV"
    echo unfinished >"$VENV/.fairseq-rela"
    "$PYTHON" -m venv "$VENV" || give_up "$PYTHON -m venv (is its module venv installed?)"
    local pip=("$VENV/bin/python" -m pip install --quiet --quiet --disable-pip-version-check)
    "${pip[@]}" --requirement "$ROOT/requirements.txt" || give_up "installing requirements.txt"
    "${pip[@]}" --no-deps --requirement "$ROOT/requirements-fairseq.txt" || give_up "installing fairseq"
    "${pip[@]}" --no-deps --editable "$ROOT" || give_up "installing fairseq-rela"
    wanted_stamp >"$VENV/.fairseq-rela"
}

# Install the tools that build the documentation, for docs.sh and test.sh.
add_docs_tools() {
    local wanted
    wanted=$(sha256sum <"$ROOT/requirements-docs.txt")
    if [ "$(cat "$VENV/.docs" 2>/dev/null)" = "$wanted" ]; then return; fi
    "$VENV/bin/python" -m pip install --quiet --quiet --disable-pip-version-check \
        --requirement "$ROOT/requirements-docs.txt" || fail "installing requirements-docs.txt failed; see above"
    echo "$wanted" >"$VENV/.docs"
}

make_environment
export PATH=$VENV/bin:$PATH
