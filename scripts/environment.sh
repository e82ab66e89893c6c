# Sourced by the other scripts: makes the project's own environment, .venv, and puts it on PATH.
#
#   PYTHON  a Python 3.11 or 3.12 (default: the first of python3.11, python3.12, python3 that is one)
#   VENV    where the environment is (default: .venv beside this checkout's README)

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=${VENV:-$ROOT/.venv}
unset PYTHONPATH PYTHONHOME

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
        supported "$PYTHON" || fail "$("$PYTHON" --version 2>&1) is not supported: set PYTHON to a Python 3.11 or 3.12"
        return
    fi
    for PYTHON in python3.11 python3.12 python3; do
        if command -v "$PYTHON" >/dev/null && supported "$PYTHON"; then return; fi
    done
    fail "no Python 3.11 or 3.12 found; install one, or set PYTHON to it"
}

# What is in .venv/.fairseq-rela: the Python and the requirements that were installed in full.
wanted_stamp() {
    { "$PYTHON" --version; cat "$ROOT/requirements.txt" "$ROOT/requirements-fairseq.txt"; echo "$ROOT"; } | sha256sum
}

make_environment() {
    find_python
    if [ -e "$VENV" ] && [ ! -e "$VENV/.fairseq-rela" ]; then
        fail "$VENV was not made by these scripts and is left alone; move it away, or set VENV to another folder"
    fi
    if [ -e "$VENV" ] && [ "$(cat "$VENV/.fairseq-rela")" = "$(wanted_stamp)" ]; then return; fi
    echo "making $VENV with $("$PYTHON" --version 2>&1); the first time this downloads PyTorch" >&2
    rm -rf "$VENV"
    mkdir -p "$VENV"
    echo unfinished >"$VENV/.fairseq-rela"
    "$PYTHON" -m venv "$VENV" || fail "$PYTHON -m venv failed; is its venv module installed?"
    local pip=("$VENV/bin/python" -m pip install --quiet --quiet --disable-pip-version-check)
    "${pip[@]}" --requirement "$ROOT/requirements.txt" || fail "installing requirements.txt failed; see above"
    "${pip[@]}" --no-deps --requirement "$ROOT/requirements-fairseq.txt" || fail "installing fairseq failed; see above"
    "${pip[@]}" --no-deps --editable "$ROOT" || fail "installing fairseq-rela failed; see above"
    wanted_stamp >"$VENV/.fairseq-rela"
}

make_environment
export PATH=$VENV/bin:$PATH
