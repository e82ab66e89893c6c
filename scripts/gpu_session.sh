#!/usr/bin/env bash
# Use a GPU that is available for 11 minutes only: compare all kernels with float64, run the benchmark and that of the
# operator, and do as many runs of a study as fit, several in parallel. Each step has its own time limit. Results are
# written to $OUT as they are made: session.txt, kernels.log, bench.log, benchmark.json, operator.log, operator.json,
# study.log, study.tar.gz.
#
#   scripts/gpu_session.sh                 DRY_RUN=1 only shows the commands
#
#   OUT      folder for the results (default: gpu_session)
#   TOTAL    seconds for all steps (default: 660); 30 of them are reserved to collect the study
#   KERNELS, BENCH, OPERATOR   time limits of these steps in seconds (default: 180, 150, 120); the study has the rest
#   STUDY    a study in configs/study/ (default: multi30k_en_de_gpu), with JOBS runs in parallel (default: 12)
#   ROOT_DIR folder of the experiments (default: experiments); for Multi30k it holds multi30k_en_de/data
#   RAW      a folder with the raw corpus, if ROOT_DIR has no data
#   WHEELS   a folder with wheels to install on a machine without internet (default: .whl)
#   DEVICE   cuda or cpu (default: cuda); cpu tries the script with Triton's interpreter and a small benchmark
#   PYTHON   the Python to use, with its torch and triton (default: python3)
set -uo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT" || exit 2
PYTHON=${PYTHON:-python3} DEVICE=${DEVICE:-cuda} STUDY=${STUDY:-multi30k_en_de_gpu} JOBS=${JOBS:-12}
OUT=${OUT:-gpu_session} TOTAL=${TOTAL:-660} KERNELS=${KERNELS:-180} BENCH=${BENCH:-150} OPERATOR=${OPERATOR:-120}
ROOT_DIR=${ROOT_DIR:-experiments} WHEELS=${WHEELS:-.whl} RAW=${RAW:-} DRY_RUN=${DRY_RUN:-}
RESERVED=30 # seconds to collect and pack the study
begin=$SECONDS status=0

fail() {
    echo "gpu_session.sh: error: $*" >&2
    exit 2
}

say() {
    echo "$((SECONDS - begin)) s: $*" | tee -a "$OUT/session.txt"
}

# step NAME SECONDS LOG COMMAND...: run a command with a time limit; the next step runs even if it fails
step() {
    local name=$1 limit=$2 log=$3 code
    shift 3
    if [ -n "$DRY_RUN" ]; then
        echo "$name ($limit s): $*"
        return
    fi
    if [ "$limit" -lt 1 ]; then
        say "$name: no time is left"
        status=1
        return
    fi
    say "$name: at most $limit s"
    timeout --kill-after=5 "$limit" "$@" >>"$OUT/$log" 2>&1
    code=$?
    case $code in
        0) say "$name: done" ;;
        124 | 137) say "$name: stopped after $limit s; see $log" ;;
        *) say "$name: failed with exit code $code; see $log" ;;
    esac
    # a study that is stopped by its time limit is no failure
    [ $code -eq 0 ] || { [ "$name" = study ] && [ $code -eq 124 ]; } || status=1
}

install_wheels() {
    ls "$WHEELS"/*.whl >/dev/null 2>&1 || return 0
    [ -z "$DRY_RUN" ] || { echo "wheels: $WHEELS"; return 0; }
    site=$(mktemp -d)
    "$PYTHON" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "$WHEELS"/*.whl ||
        fail "$WHEELS: the wheels cannot be installed; are they for this Python?"
    export PYTHONPATH=$site:$PYTHONPATH
}

pack_study() { # replace the archive in one step
    [ ! -d "$studies/$STUDY" ] || { tar -czf "$OUT/.study" -C "$studies" "$STUDY" && mv "$OUT/.study" "$OUT/study.tar.gz"; }
}

for number in "$TOTAL" "$KERNELS" "$BENCH" "$OPERATOR" "$JOBS"; do
    [[ $number =~ ^[1-9][0-9]*$ ]] ||
        fail "$number: give whole numbers of at least 1 for TOTAL, KERNELS, BENCH, OPERATOR and JOBS"
done
[ "$DEVICE" = cuda ] || [ "$DEVICE" = cpu ] || fail "DEVICE=$DEVICE: give cuda or cpu"
command -v "$PYTHON" >/dev/null || fail "PYTHON=$PYTHON: no such program"
[ -n "$DRY_RUN" ] || mkdir -p "$OUT" || fail "OUT=$OUT: cannot be made"
[ -n "$DRY_RUN" ] || OUT=$(cd "$OUT" && pwd)
export PYTHONPATH=$ROOT PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
install_wheels
if [ -z "$DRY_RUN" ]; then
    say "$(git rev-parse HEAD 2>/dev/null || echo 'no git'), $("$PYTHON" --version 2>&1)," \
        "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || echo "no GPU: $DEVICE")"
fi

check=("$PYTHON" scripts/gpu_check.py) bench=(--device cuda --quick)
operator=("${bench[@]}" --parts op)
if [ "$DEVICE" = cpu ]; then
    check=(env TRITON_INTERPRET=1 "${check[@]}" --quick)
    bench=(--device cpu --quick --parts "flops,parameters")
    operator=(--device cpu --quick --parts op --lengths 16)
fi
rela=("$PYTHON" -W ignore -m fairseq_rela.cli)
work=$([ -n "$DRY_RUN" ] && echo WORK || mktemp -d)
studies=$work/studies
step kernels "$KERNELS" kernels.log "${check[@]}"
step benchmark "$BENCH" bench.log "${rela[@]}" bench "${bench[@]}" --no-figures --name card --output "$work"
[ ! -f "$work/card/benchmark.json" ] || cp "$work/card/benchmark.json" "$OUT/"
step operator "$OPERATOR" operator.log "${rela[@]}" bench "${operator[@]}" --no-figures --name operator --output "$work"
[ ! -f "$work/operator/benchmark.json" ] || cp "$work/operator/benchmark.json" "$OUT/operator.json"

study=("${rela[@]}" study "$STUDY" --root "$ROOT_DIR" --output "$studies")
[ -z "$RAW" ] || study+=(--raw "$RAW")
if [ -z "$DRY_RUN" ]; then
    # an archive is there if the machine is taken back; the sleep that outlives this script holds no pipe open
    while sleep 20; do pack_study; done >/dev/null 2>&1 &
    packer=$!
    trap 'kill $packer 2>/dev/null' EXIT
fi
step study $((TOTAL - RESERVED - (SECONDS - begin))) study.log "${study[@]}" --jobs "$JOBS"
step collection "$RESERVED" study.log "${study[@]}" --collect
if [ -z "$DRY_RUN" ]; then
    kill $packer 2>/dev/null
    wait $packer 2>/dev/null
    pack_study
    say "done; results in $OUT"
fi
exit $status
