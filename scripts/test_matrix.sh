#!/usr/bin/env bash
# Test every supported fairseq in a clean environment: the fast tests, the synthetic task, and decoding of each
# environment's model by all of them. Print a table at the end; the exit code is 1 if something failed. This takes about
# half an hour for each environment on two cores.
#
#   scripts/test_matrix.sh [NAME ...]     some of py311 py312 fixed released (default: all)
#
#   STEPS         some of tests, task, exchange (default: all); exchange needs the models of task
#   MATRIX        folder for environments, models and logs (default: .matrix in this checkout)
#   ENVIRONMENTS  existing environments to use, such as "released=/path/to/venv py311=/other"
#   PYTHON310, PYTHON311, PYTHON312   the Pythons (default: on PATH, then among pyenv's)
#   UPDATES       updates of the synthetic task, a multiple of 5 (default: its own number)
set -uo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
MATRIX=${MATRIX:-$ROOT/.matrix}
STEPS=${STEPS:-tests task exchange}
unset PYTHONHOME
export PYTHONPATH=$ROOT OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}

fail() {
    echo "test_matrix.sh: error: $*" >&2
    exit 2
}

# print the version of Python of an environment
python_of() {
    case $1 in
        py311 | fixed) echo 3.11 ;;
        py312) echo 3.12 ;;
        released) echo 3.10 ;;
        *) fail "$1: no such environment; there are py311, py312, fixed, released" ;;
    esac
}

find_python() {
    local variable=PYTHON${1/./} candidate
    for candidate in "${!variable:-}" "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if [ -n "$candidate" ] && "$candidate" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    fail "no Python $1 found; install it, or set $variable to it"
}

make_environment() { # name folder
    local name=$1 folder=$2 python
    python=$(find_python "$(python_of "$name")") || exit 2
    echo "== $name: making $folder with $("$python" --version 2>&1)"
    rm -rf "$folder"
    "$python" -m venv "$folder" || return 1
    local pip=("$folder/bin/python" -m pip install --quiet --disable-pip-version-check)
    case $name in
        py311 | py312)
            "${pip[@]}" --requirement "$ROOT/requirements.txt" &&
                "${pip[@]}" --no-deps --requirement "$ROOT/requirements-fairseq.txt"
            ;;
        fixed)
            "${pip[@]}" --requirement "$ROOT/requirements.txt" && "${pip[@]}" --no-deps fairseq-fixed==0.12.3.1
            ;;
        released)
            # pip builds its source package in isolation, without a torch to compile against. fairseq asks for
            # hydra-core 1.0.7, which can run fairseq-train, but the shipped configurations need 1.3.2
            "${pip[@]}" 'pip<24.1' 'setuptools<66' wheel &&
                "${pip[@]}" 'numpy<1.24' torch==1.12.1 &&
                "${pip[@]}" --no-deps fairseq==0.12.2 &&
                "${pip[@]}" hydra-core==1.3.2 omegaconf==2.3.0 regex sacrebleu==2.6.0 tqdm bitarray cffi Cython \
                    subword-nmt==0.3.8 sacremoses entmax==1.3 filelock jinja2 PyYAML requests \
                    jieba scipy 'matplotlib>=3.7' 'numpy<1.24' pytest hypothesis
            ;;
    esac && "${pip[@]}" --no-deps --editable "$ROOT" && touch "$folder/.complete"
}

environment_of() { # name; print its folder, and make it first unless ENVIRONMENTS has it
    local pair folder=$MATRIX/$1/environment
    for pair in ${ENVIRONMENTS:-}; do
        if [ "${pair%%=*}" = "$1" ]; then
            [ -x "${pair#*=}/bin/python" ] || fail "ENVIRONMENTS: ${pair#*=} has no bin/python"
            echo "${pair#*=}"
            return
        fi
    done
    if [ ! -e "$folder/.complete" ]; then
        mkdir -p "$MATRIX/$1"
        make_environment "$1" "$folder" >&2 || fail "$1: its environment cannot be made; see above"
    fi
    echo "$folder"
}

versions_of() { # python
    "$1" - <<'PYTHON'
import platform
from importlib import metadata

names = [d.metadata["Name"] for d in metadata.distributions() if "fairseq" in (d.metadata["Name"] or "").lower()]
names = [name for name in names if name.replace("_", "-") != "fairseq-rela"]
found = [f"{name} {metadata.version(name)}" for name in dict.fromkeys(names)]
print(f"Python {platform.python_version()}, {', '.join(found)}, torch {metadata.version('torch')}")
PYTHON
}

rela() { # python arguments
    local python=$1
    shift
    "$python" -W ignore -c \
        "import sys; sys.argv[0] = 'rela'; from fairseq_rela.cli import main; sys.exit(main())" "$@"
}

# Print the number of parameters of a model; fail if the checkpoint has copies for a fused kernel.
describe_model() { # python checkpoint
    "$1" -W ignore - "$2" <<'PYTHON'
import sys
from pathlib import Path

sys.argv[0] = "rela"
from fairseq_rela import safe_loading

model = safe_loading.load(Path(sys.argv[1]))["model"]
fused = [k for k in model if k.startswith("encoder.layers.") and k.split(".")[3] in
         [f"{part}_{kind}" for part in ("in_proj", "out_proj", "fc1", "fc2") for kind in ("weight", "bias")]]
if fused:
    sys.exit(f"{sys.argv[1]} holds {len(fused)} copies for a fused kernel, such as {fused[0]}")
print(sum(value.numel() for key, value in model.items() if not key.endswith(("version", "_float_tensor"))))
PYTHON
}

names=("$@")
[ ${#names[@]} -gt 0 ] || names=(py311 py312 fixed released)
run=rela_g
if [ -n "${UPDATES:-}" ]; then
    run=rela_g.max_update-$UPDATES.save_interval_updates-$((UPDATES / 5))
fi
declare -A python versions tests task parameters exchange
failed=0
for name in "${names[@]}"; do
    python_of "$name" >/dev/null || exit 2
done
for name in "${names[@]}"; do
    folder=$(environment_of "$name") || exit 2
    python[$name]=$folder/bin/python
    versions[$name]=$(versions_of "${python[$name]}") || fail "$name: $folder has no torch and fairseq"
    mkdir -p "$MATRIX/$name"
done

for name in "${names[@]}"; do
    tests[$name]=- task[$name]=- parameters[$name]=- exchange[$name]=-
    if [[ " $STEPS " == *" tests "* ]]; then
        echo "== $name: the fast tests (log: $MATRIX/$name/tests.log)"
        (cd "$ROOT" && "${python[$name]}" -m pytest -q -m "not slow" -p no:cacheprovider) >"$MATRIX/$name/tests.log" 2>&1 ||
            failed=1
        tests[$name]=$(tail -n 1 "$MATRIX/$name/tests.log" | tr -d '=' | sed 's/^ *//; s/ in .*//')
    fi
    if [[ " $STEPS " == *" task "* ]]; then
        echo "== $name: the synthetic task (log: $MATRIX/$name/task.log)"
        overrides=()
        if [ -n "${UPDATES:-}" ]; then
            overrides=(--override "optimization.max_update=$UPDATES")
            overrides+=(--override "checkpoint.save_interval_updates=$((UPDATES / 5))") # five are averaged
        fi
        if rela "${python[$name]}" reproduce synthetic rela_g --root "$MATRIX/$name/experiments" "${overrides[@]}" \
            >"$MATRIX/$name/task.log" 2>&1; then
            task[$name]="BLEU $(sed -n 's/^sacreBLEU  *\([0-9.]*\)  .*/\1/p' "$MATRIX/$name/task.log" | head -n 1)"
        else
            task[$name]=failed
            failed=1
        fi
    fi
done

if [[ " $STEPS " == *" exchange "* ]]; then
    for maker in "${names[@]}"; do
        checkpoint=$MATRIX/$maker/experiments/synthetic/$run/average.pt
        data=$MATRIX/$maker/experiments/synthetic/data
        if [ ! -f "$checkpoint" ]; then
            exchange[$maker]="no model"
            failed=1
            continue
        fi
        parameters[$maker]=$(describe_model "${python[$maker]}" "$checkpoint") || failed=1
        first= different=
        for reader in "${names[@]}"; do
            echo "== $maker's model decoded by $reader"
            output=$MATRIX/$reader/of.$maker
            rm -f "$output".*
            if ! rela "${python[$reader]}" translate "$data" --checkpoint "$checkpoint" --output "$output" \
                >"$MATRIX/$reader/of.$maker.out" 2>&1; then
                different="$different $reader(failed)"
                continue
            fi
            [ -n "$first" ] || first=$output.bpe
            cmp -s "$first" "$output.bpe" || different="$different $reader($(diff "$first" "$output.bpe" | grep -c '^<') lines)"
        done
        if [ -n "$different" ]; then
            exchange[$maker]="differs:$different"
            failed=1
        else
            exchange[$maker]="the same by ${#names[@]}"
        fi
    done
fi

echo
{
    echo "environment|versions|fast tests|synthetic task|parameters|its model, decoded"
    for name in "${names[@]}"; do
        echo "$name|${versions[$name]}|${tests[$name]}|${task[$name]}|${parameters[$name]}|${exchange[$name]}"
    done
} | column -t -s '|'
exit $failed
