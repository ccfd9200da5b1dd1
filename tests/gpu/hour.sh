#!/usr/bin/env bash
# An hour on a machine with a card, as four calls in the order of what is most worth knowing
# (docs/cards.md#an-hour-on-a-card, which says what each takes):
#
#   tests/gpu/hour.sh [--tiny] CALL ...
#
#   1   the smallest build; limits of the card, head and sampler; decoding
#   2   the rest of the build; the kernels with libtorch's; whole runs beside the CPU
#   3   update and GRPO step beside their rooflines; where their time goes; the other figures
#   4   the profiler on decoding, head and activation; then the sanitizers
#
# Each call goes on where an earlier one stopped (tests/gpu/run.sh, benchmarks/gpu/run.sh, whose
# variables it takes: ARES_GPU_OUT, ARES_GPU_BEFORE, ARES_BUILD, BUILT). A failure ends no call.
# --tiny: a dry run, on an emulated card where ARES_CUDA_LIB names one.
# Last line: `hour: N calls went well, N did not`.
set -u
cd "$(dirname "$0")/../.." || exit 2
tiny=() calls=() well=0 ill=0
for word; do
    case $word in
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --tiny) tiny=(--tiny) ;;
    [1-4]) calls+=("$word") ;;
    *) echo "hour.sh: '$word': no such call (calls: 1 2 3 4; options: --tiny)" >&2; exit 2 ;;
    esac
done
((${#calls[@]})) || { echo "hour.sh: no call is named (calls: 1 2 3 4; options: --tiny)" >&2; exit 2; }
tests=tests/gpu/run.sh
figures() { BUILT=1 benchmarks/gpu/run.sh "${tiny[@]}" "$@"; }
call_1() {
    ARES_BUILD_TARGETS="ares-train bench_card bench_step ares_cuda" $tests build && figures card decode
}
call_2() {
    local rc=0
    $tests build aten runs || rc=1
    return $rc
}
call_3() {
    local rc=0
    figures update grpo times || rc=1
    ((${#tiny[@]})) || figures algo recompute vision group peers || rc=1 # an emulated card takes minutes
    return $rc
}
call_4() {
    local rc=0
    figures profile || rc=1
    $tests sanitize || rc=1
    return $rc
}
for call in "${calls[@]}"; do
    begun=$SECONDS
    echo "== call $call"
    if "call_$call"; then well=$((well + 1)) verdict=well; else ill=$((ill + 1)) verdict=ill; fi
    echo "== call $call went $verdict, $((SECONDS - begun)) s"
done
echo "hour: $well calls went well, $ill did not"
((ill == 0))
