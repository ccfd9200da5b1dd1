#!/usr/bin/env bash
# Measures what docs/performance.md#goals-on-a-card lists on a card, each figure beside its roofline,
# in parts that each take less than 8 minutes of an H200 (default: all, in this order):
#
#   benchmarks/gpu/run.sh [--tiny] [device=cuda] [kernels=native] [PART ...]
#
#   card       limits of the card, head and sampler (G7, G8, G9), change of phase (G19)
#   decode     G1 and G2
#   update     G14
#   grpo       G16
#   times      where the time of decoding and of a GRPO step goes, by operation and phase
#   algo       losses and sampler alone (G7, G12)
#   recompute  G15
#   vision     a tower, forward and backward
#   group      sums and gathers between cards, where there are several
#   peers      PyTorch on the same card, where .venv-peers has one that sees it
#   profile    ncu's sections of decoding, head and activation, where there is an ncu
#
# Models have random weights in the shapes of Qwen2.5-0.5B and 1.5B, which ares-train init writes
# once. A step that fails or takes too long leaves its figures out, and only such steps are done again
# by the next call with the same commit; FRESH=1 does all. ARES_GPU_OUT names the folder for figures,
# tables and logs (default: gpu-benchmarks in the build folder), ARES_GPU_BEFORE that of an earlier
# call. Without it the figures are also written to benchmarks/results/DATE-CARD.jsonl, one per line with
# card, date and command.
# --tiny: sizes of a minute on a CPU or an emulated card, which only show that the programs work.
# ARES_BUILD names another build folder; BUILT=1 takes its programs as they are.
set -u
parts=(card decode update grpo times algo recompute vision group peers profile)
cd "$(dirname "$0")/../.." || exit 2
build=${ARES_BUILD:-build} device=cuda kernels=native tiny="" wanted=()
for word; do
    case $word in
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --tiny) tiny=1 ;;
    device=* | kernels=*) declare "${word%%=*}=${word#*=}" ;;
    *)
        [[ " ${parts[*]} " == *" $word "* ]] || {
            echo "run.sh: '$word': no such part (parts: ${parts[*]}; options: --tiny, device=, kernels=)" >&2
            exit 2
        }
        wanted+=("$word") ;;
    esac
done
((${#wanted[@]})) || wanted=("${parts[@]}")
if [[ $device != cpu && ! -e /dev/nvidiactl && -z ${ARES_CUDA_LIB:-} ]]; then
    echo "run.sh: no CUDA device on this machine; nothing was measured (device=cpu --tiny tries it)" >&2
    exit 2
fi
where=("device=$device" "kernels=$kernels")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=${ARES_GPU_OUT:-$build/gpu-benchmarks}
[[ -z $tiny || -n ${ARES_GPU_OUT:-} ]] || out=$work/out
models=${ARES_GPU_MODELS:-$build/gpu-models}
mkdir -p "$out" || exit 2
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
for file in figures.jsonl done.txt; do # of an earlier call
    [[ -z ${ARES_GPU_BEFORE:-} || -e $out/$file || ! -r $ARES_GPU_BEFORE/$file ]] ||
        cp "$ARES_GPU_BEFORE/$file" "$out/$file"
done
if [[ -n ${FRESH:-} ]]; then rm -f "$out/figures.jsonl" "$out/done.txt"; fi
touch "$out/done.txt"
failed=0

if [[ -z ${BUILT:-} ]]; then
    cmake --build "$build" -j "$(nproc)" --target ares-train bench_card bench_step bench_vision \
        bench_algo_cuda bench_group >&2 || exit 2
fi
measure() { # seconds at most, goal, command...: its JSON lines, with goal and command
    local limit=$1 goal=$2 rc=0 name
    shift 2
    if grep -qxF "$commit $goal $*" "$out/done.txt"; then
        echo "== $goal: $*: measured before" >&2
        return
    fi
    echo "== $goal: $*" >&2
    timeout -k 20 "$limit" "$@" >"$work/lines" 2>"$work/said" || rc=$?
    cat "$work/said" >&2
    if grep -q '^kernel times' "$work/said"; then
        name=$out/times-${goal#times-}.txt
        { echo "$*"; sed -n '/^kernel times/,$p' "$work/said"; } >"$name"
        echo "   written: $name" >&2
    fi
    python3 benchmarks/gpu/report.py add "$out/figures.jsonl" "$goal" "$*" <"$work/lines"
    if ((rc == 0)); then echo "$commit $goal $*" >>"$out/done.txt"; else
        failed=$((failed + 1))
        echo "   exit $rc: figures are missing" >&2
    fi
}
model() { # name, hidden, layers, heads, kv heads, intermediate
    [[ -e $models/$1/config.json ]] && return
    mkdir -p "$models"
    rm -rf "$models/$1.new"
    "$build/ares-train" init --arch qwen2 --hidden "$2" --layers "$3" --heads "$4" --kv-heads "$5" \
        --intermediate "$6" --vocab 151936 --max-position 4096 --dtype bf16 --seed 1 \
        --out "$models/$1.new" >/dev/null && mv "$models/$1.new" "$models/$1" || exit 2
}

if [[ -n $tiny ]]; then
    card=(dtype=fp32 rows=64 vocab=1000 hidden=64 batch=4 mib=4 cube=128 gib=0 repeat=2)
    small=tiny middle=tiny dtype=fp32 once=(repeat=1)
    decode_1=(batch=1 prompt=16 new=4) decode_256=(batch=8 prompt=16 new=4)
    update=(rows=4 tokens=32 micro=128) grpo=(prompts=1 samples=2 prompt=16 new=4)
    tower=(side=8 depth=2) twins=(tokens=4096 batch=4 vocab=1000 repeat=2)
else
    card=() twins=()
    small=$models/qwen2.5-0.5b middle=$models/qwen2.5-1.5b dtype=bf16 once=(repeat=3)
    decode_1=(batch=1 prompt=1024 new=128) decode_256=(batch=256 prompt=1024 new=128)
    update=(rows=128 tokens=1024 micro=16384)
    grpo=(prompts=64 samples=8 prompt=256 new=512 micro=16384)
    tower=(side=64 depth=32)
fi
needs_small() { [[ -n $tiny ]] || model qwen2.5-0.5b 896 24 14 2 4864; }
needs_middle() { [[ -n $tiny ]] || model qwen2.5-1.5b 1536 28 12 2 8960; }
step() { # seconds, goal, what, model, options...
    measure "$1" "$2" "$build/bench_step" "$3" "model=$4" "dtype=$dtype" "${where[@]}" "${once[@]}" \
        "${@:5}"
}

part_card() { measure 240 "" "$build/bench_card" "${where[@]}" "${card[@]}"; }
part_decode() {
    needs_small
    step 120 G1 decode "$small" "${decode_1[@]}"
    step 240 G2 decode "$small" "${decode_256[@]}"
}
part_update() {
    needs_small
    step 200 G14 update "$small" "${update[@]}"
    needs_middle
    step 240 G14 update "$middle" "${update[@]}"
}
part_grpo() {
    needs_small
    step 300 G16 grpo "$small" "${grpo[@]}"
}
part_times() { # without graphs, so that no figure of theirs is a share of a roofline
    needs_small
    local -x ARES_KERNEL_TIMES=1
    once=(repeat=1)
    step 240 times-G2 decode "$small" "${decode_256[@]}"
    step 240 times-G16 grpo "$small" "${grpo[@]}"
}
part_algo() {
    [[ $device == cpu ]] || measure 240 "" "$build/bench_algo_cuda" "device=$device" "${twins[@]}"
}
part_recompute() {
    needs_small
    step 220 G15 update "$small" "${update[@]}" recompute=1
    needs_middle
    step 240 G15 update "$middle" "${update[@]}" recompute=1
}
part_vision() {
    measure 240 "" "$build/bench_vision" family=2.5 "dtype=$dtype" "${where[@]}" "${once[@]}" "${tower[@]}"
}
cards=$(nvidia-smi --list-gpus 2>/dev/null | wc -l)
part_group() {
    [[ -z $tiny && $device == cuda ]] && ((cards > 1)) || return
    local -x OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    for transport in nccl staged; do
        measure 200 "" mpirun -n "$cards" --bind-to none "$build/bench_group" transport=$transport
    done
}
part_peers() {
    local venv=${ARES_PEERS_VENV:-.venv-peers}
    [[ -z $tiny && -x $venv/bin/python ]] &&
        "$venv/bin/python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null ||
        return
    peer() { measure 200 "$1" "$venv/bin/python" benchmarks/gpu/peer.py "${@:2}"; }
    needs_small
    peer G1 decode "$small" 1 1024 128
    peer G2 decode "$small" 256 1024 128
    peer G8 head 16384 151936 896
    ((cards < 2)) || measure 200 "" "$venv/bin/torchrun" --nproc-per-node "$cards" \
        benchmarks/gpu/peer.py reduce_scatter 512
}
# Kernels by name; no figure, because counting slows them down. 24 layers: some launches of each.
part_profile() {
    local ncu
    ncu=$(command -v ncu || echo /usr/local/cuda/bin/ncu)
    if [[ -n $tiny || ! -x $ncu ]]; then
        echo "== profile: left out (no ncu, or sizes that say nothing)" >&2
        return
    fi
    needs_small
    local look=("$ncu" --section SpeedOfLight --section MemoryWorkloadAnalysis --section Occupancy
        --section WarpStateStats)
    measure 220 profile-decode "${look[@]}" --log-file "$out/ncu-decode.txt" --launch-skip 200 \
        --launch-count 12 --kernel-name 'regex:decode|gated|rms_row|store_heads' "$build/bench_step" \
        decode "model=$small" "dtype=$dtype" "${where[@]}" repeat=1 batch=256 prompt=1024 new=8
    measure 220 profile-head "${look[@]}" --log-file "$out/ncu-head.txt" --launch-count 12 \
        --kernel-name 'regex:row_statistics|differentiate|sample' "$build/bench_card" "${where[@]}" \
        "${card[@]}" gib=0 repeat=1
}

for part in "${wanted[@]}"; do "part_$part"; done

name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
[[ -s $out/figures.jsonl ]] || { echo "run.sh: no figures" >&2; exit $((failed > 0)); }
python3 benchmarks/gpu/report.py show "$out/figures.jsonl"
if [[ -z $tiny && $device != cpu ]]; then
    file=$out
    [[ -n ${ARES_GPU_OUT:-} ]] || file=benchmarks/results
    file=$file/$(date -u +%F)-$(tr 'A-Z ' 'a-z-' <<<"${name:-card}").jsonl
    python3 benchmarks/gpu/report.py write "$out/figures.jsonl" "${name:-unknown}" "$commit" >"$file" &&
        echo "written: $file"
fi
((failed == 0))
