#!/usr/bin/env bash
# Measures what docs/performance.md#goals-on-a-card lists on a card, each figure beside its roofline,
# and writes benchmarks/results/DATE-CARD.jsonl: one line per figure, with card, date and command.
#
#   benchmarks/gpu/run.sh [--tiny] [device=cuda] [kernels=native]
#
# Models have random weights in the shapes of Qwen2.5-0.5B and 1.5B, which ares-train init writes.
# A step that fails or takes too long leaves its figures out. Where .venv-peers has a PyTorch that
# sees the card, its decoding and head are measured beside ours (benchmarks/peers).
# --tiny: sizes of a minute on a CPU, which only show that the programs work; written nowhere.
# ARES_BUILD names another build folder; BUILT=1 takes its programs as they are.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=${ARES_BUILD:-build} device=cuda kernels=native tiny=
for word; do
    case $word in
    --tiny) tiny=1 ;;
    device=* | kernels=*) declare "${word%%=*}=${word#*=}" ;;
    *) echo "run.sh: '$word': no such option" >&2; exit 2 ;;
    esac
done
if [[ $device != cpu && ! -e /dev/nvidiactl && -z ${ARES_CUDA_LIB:-} ]]; then
    echo "run.sh: no CUDA device on this machine; nothing was measured (device=cpu --tiny tries it)" >&2
    exit 2
fi
where=("device=$device" "kernels=$kernels")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

[[ -n ${BUILT:-} ]] || cmake --build "$build" -j "$(nproc)" --target ares-train bench_card bench_step \
    bench_vision bench_algo_cuda bench_group >&2 || exit 2
measure() { # seconds at most, goal, command...: its JSON lines, with goal and command
    local limit=$1 goal=$2 rc=0
    shift 2
    echo "== $goal: $*" >&2
    timeout -k 20 "$limit" "$@" >"$work/lines" || rc=$?
    ((rc == 0)) || { failed=$((failed + 1)); echo "   exit $rc: its figures are left out" >&2; }
    python3 benchmarks/gpu/report.py add "$work/all.jsonl" "$goal" "$*" <"$work/lines"
}
model() { # name, hidden, layers, heads, kv heads, intermediate
    "$build/ares-train" init --arch qwen2 --hidden "$2" --layers "$3" --heads "$4" --kv-heads "$5" \
        --intermediate "$6" --vocab 151936 --max-position 4096 --dtype bf16 --seed 1 \
        --out "$work/$1" >/dev/null || exit 2
}

if [[ -n $tiny ]]; then
    card=(dtype=fp32 rows=64 vocab=1000 hidden=64 batch=4 mib=4 cube=128 gib=0 repeat=2)
    small=tiny middle=tiny dtype=fp32 once=(repeat=1)
    decode_1=(batch=1 prompt=16 new=4) decode_256=(batch=8 prompt=16 new=4)
    update=(rows=4 tokens=32 micro=128) grpo=(prompts=1 samples=2 prompt=16 new=4)
    tower=(side=8 depth=2) twins=(tokens=4096 batch=4 vocab=1000 repeat=2)
else
    card=() twins=()
    model qwen2.5-0.5b 896 24 14 2 4864
    model qwen2.5-1.5b 1536 28 12 2 8960
    small=$work/qwen2.5-0.5b middle=$work/qwen2.5-1.5b dtype=bf16 once=(repeat=3)
    decode_1=(batch=1 prompt=1024 new=128) decode_256=(batch=256 prompt=1024 new=128)
    update=(rows=128 tokens=1024 micro=16384)
    grpo=(prompts=64 samples=8 prompt=256 new=512 micro=16384)
    tower=(side=64 depth=32)
fi
step() { # seconds, goal, what, model, options...
    measure "$1" "$2" "$build/bench_step" "$3" "model=$4" "dtype=$dtype" "${where[@]}" "${once[@]}" \
        "${@:5}"
}
measure 600 "" "$build/bench_card" "${where[@]}" "${card[@]}"
[[ $device == cpu ]] || measure 600 "" "$build/bench_algo_cuda" "device=$device" "${twins[@]}"
step 600 G1 decode "$small" "${decode_1[@]}"
step 600 G2 decode "$small" "${decode_256[@]}"
measure 600 "" "$build/bench_vision" family=2.5 "dtype=$dtype" "${where[@]}" "${once[@]}" "${tower[@]}"
step 900 G14 update "$small" "${update[@]}"
step 900 G14 update "$middle" "${update[@]}"
step 900 G15 update "$small" "${update[@]}" recompute=1
step 900 G15 update "$middle" "${update[@]}" recompute=1
step 1200 G16 grpo "$small" "${grpo[@]}"

# between cards, where there are several
cards=$(nvidia-smi --list-gpus 2>/dev/null | wc -l)
if [[ -z $tiny && $device == cuda ]] && ((cards > 1)); then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    for transport in nccl staged; do
        measure 300 "" mpirun -n "$cards" --bind-to none "$build/bench_group" transport=$transport
    done
fi

venv=${ARES_PEERS_VENV:-.venv-peers}
if [[ -z $tiny && -x $venv/bin/python ]] &&
    "$venv/bin/python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    peer() { measure 900 "$1" "$venv/bin/python" benchmarks/gpu/peer.py "${@:2}"; }
    peer G1 decode "$small" 1 1024 128
    peer G2 decode "$small" 256 1024 128
    peer G8 head 16384 151936 896
    ((cards < 2)) || measure 300 "" "$venv/bin/torchrun" --nproc-per-node "$cards" \
        benchmarks/gpu/peer.py reduce_scatter 512
fi

name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
[[ -s $work/all.jsonl ]] || { echo "run.sh: no figures" >&2; exit 1; }
python3 benchmarks/gpu/report.py show "$work/all.jsonl"
if [[ -z $tiny && $device != cpu ]]; then
    file=benchmarks/results/$(date -u +%F)-$(tr 'A-Z ' 'a-z-' <<<"${name:-card}").jsonl
    python3 benchmarks/gpu/report.py write "$work/all.jsonl" "${name:-unknown}" \
        "$(git rev-parse --short HEAD 2>/dev/null)" >>"$file" && echo "written: $file"
fi
((failed == 0))
