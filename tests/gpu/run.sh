#!/usr/bin/env bash
# What a machine with a card has to show, in parts that each take less than 8 minutes of 16 cores:
#
#   tests/gpu/run.sh [--build DIR] [--jobs N] [PART ...]    (default: build, as many as processors, all)
#
#   build      configure and compile; the driver and the library load
#   own        every kernel beside the CPU's, with our own attention: fp32, then bf16
#   aten       libtorch: its table on the CPU, and the kernels again with what a card takes from it
#   rooms      the tests labelled gpu of the other rooms, goldens through the twins of algo
#   runs       two steps of every algorithm and over pictures beside the CPU, and test_e2e's
#   nccl       NCCL between ranks
#   sanitize   memory, races in shared memory and barriers of our own kernels (compute-sanitizer)
#
# A step is one process with a time limit of its own; --jobs steps run side by side, and a failure
# stops no other. A step that was ok is not done again while sources, library and card are the same:
# call the script again to go on. FRESH=1 does all of them. ARES_GPU_OUT names the folder for logs and
# summary.txt (default: gpu in the build folder), ARES_GPU_BEFORE that of an earlier call, where it
# is another one. BUILT=1 takes the programs as they are, as does a machine without nvcc that has a
# libares_cuda.so; ARES_CUDA_LIB says where that is. The build takes ARES_BUILD_TARGETS (all),
# ARES_CMAKE_ARGS, ARES_DEPS_PREFIX and ARES_LIBTORCH. DRY=1 only lists the steps.
# Last line: `gpu: N steps passed, N failed`; exit status 1 when one failed, 2 when nothing could be
# run.
set -u
parts=(build own aten rooms runs nccl sanitize)
usage() {
    echo "run.sh: $1 (parts: ${parts[*]}; options: --build DIR, --jobs N)" >&2
    exit 2
}
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${ARES_BUILD:-$root/build} jobs=$(nproc) wanted=()
while (($#)); do
    case $1 in
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --build | --jobs)
        (($# > 1)) || usage "$1: takes a value"
        if [[ $1 == --build ]]; then build=$2; else jobs=$2; fi
        shift 2 ;;
    *)
        [[ " ${parts[*]} " == *" $1 "* ]] || usage "'$1': no such part"
        wanted+=("$1")
        shift ;;
    esac
done
[[ $jobs =~ ^[1-9][0-9]{0,3}$ ]] || usage "--jobs '$jobs': a number from 1 on"
((${#wanted[@]})) || wanted=("${parts[@]}")
build=$(realpath -m "$build")
out=$(realpath -m "${ARES_GPU_OUT:-$build/gpu}")
cd "$root" || exit 2
library=${ARES_CUDA_LIB:-$build/libares_cuda.so}
emulated=""
[[ $(basename "$library") == *emulated* ]] && emulated=1
if [[ ! -e /dev/nvidiactl && -z $emulated && -z ${DRY:-} ]]; then
    echo "gpu: no CUDA device on this machine; nothing was run (docs/testing.md#without-a-card-the-emulator)" >&2
    exit 2
fi
export ARES_REQUIRE_CUDA=1 ARES_TEST_PATIENCE=${ARES_TEST_PATIENCE:-4} # steps side by side are slower

# What a result depends on: a step that was ok with the same is left out.
same_as() {
    local sources
    sources=$(find CMakeLists.txt cmake include src tests -type f -not -name '*.log' -not -name '*.pyc' -print0 |
        LC_ALL=C sort -z | xargs -0 cat | cksum | cut -d' ' -f1)
    echo "$sources-$([[ -r $library ]] && cksum <"$library" | cut -d' ' -f1)-$(
        nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 | tr ' ' '_')${ARES_EMULATE_ROUNDING:-}"
}
summary=$out/summary.txt known=""
begin() {
    mkdir -p "$out" "$build/gpu" || exit 2
    same=$(same_as)
    [[ -n ${FRESH:-} ]] ||
        known=$(cat "$build/gpu/summary.txt" "$summary" "${ARES_GPU_BEFORE:+$ARES_GPU_BEFORE/summary.txt}" 2>/dev/null)
    {
        echo "# $(date -u +"%F %H:%M UTC") $(git rev-parse --short HEAD 2>/dev/null): ${wanted[*]}"
        nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | sed 's/^/# /'
    } | tee -a "$summary"
}
note() { # a line of the summary; of a step, its result
    echo "$1" >>"$summary"
    [[ $out == "$build/gpu" ]] || echo "$1" >>"$build/gpu/summary.txt"
}
results=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$results"' EXIT
trap 'exit 143' INT TERM

step() { # name, seconds at most, command...: its output goes to name.log
    local name=$1 limit=$2 rc=0 begun=$SECONDS line=ok
    shift 2
    if [[ -n ${DRY:-} ]]; then
        echo "$name: $*"
        return
    fi
    if grep -qxE "$name +ok, [0-9]+ s +$same" <<<"$known"; then
        echo "$name: ok before"
        touch "$results/$name.ok"
        return
    fi
    timeout -k 20 "$limit" "$@" >"$out/$name.log" 2>&1 </dev/null &
    local child=$!
    ((BASHPID == $$)) || trap 'kill $child; wait; exit 143' TERM # one that runs beside others
    wait $child || rc=$?
    if ((rc == 0)); then touch "$results/$name.ok"; else
        touch "$results/$name.failed"
        line="FAIL (exit $rc)"
        ((rc == 124 || (rc == 137 && SECONDS - begun >= limit))) && line="FAIL (more than $limit s)"
    fi
    note "$(printf '%-60s %s, %d s  %s' "$name" "$line" $((SECONDS - begun)) "$same")"
    {
        printf '%-60s %s, %d s\n' "$name" "$line" $((SECONDS - begun))
        ((rc == 0)) || grep -aE 'FAIL|failed|rror' "$out/$name.log" | tail -n 6 | sed 's/^/    /'
    } | cat # at once
    return $rc
}
beside() { # step, beside others
    if [[ -n ${DRY:-} ]]; then step "$@"; return; fi
    while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done
    step "$@" &
}
names() { # program, words of --list: one test per line
    "$@" --list --label gpu 2>/dev/null | sed 's/[ :].*//' | grep -E '^[a-z]' | sort -u
}
how="" # added to the names of steps
each_test() { # step or beside, program, seconds for one test, names...: one process per test, so that
              # one that hangs or breaks the card's context takes no other with it
    local start=$1 program=$2 limit=$3
    shift 3
    for test; do
        $start "$(basename "$program").$test$how" "$limit" "$program" --label gpu "$test"
    done
}

part_build() { # never left out: what is up to date takes no time
    local cuda=ON known="" targets=${ARES_BUILD_TARGETS:-all}
    if [[ -n $emulated ]] || ! PATH=$PATH:/usr/local/cuda/bin command -v nvcc >/dev/null; then
        cuda=AUTO targets=${targets/ares_cuda/}
    fi
    if [[ -z ${BUILT:-} ]]; then
        # shellcheck disable=SC2086
        step build.configure 300 cmake --preset release -B "$build" -DARES_CUDA=$cuda \
            -DARES_WERROR=OFF ${ARES_DEPS_PREFIX:+-DARES_DEPS_PREFIX="$ARES_DEPS_PREFIX"} \
            ${ARES_LIBTORCH:+-DARES_LIBTORCH="$ARES_LIBTORCH"} ${ARES_CMAKE_ARGS:-}
        # shellcheck disable=SC2086
        step build 470 cmake --build "$build" -j "$(nproc)" --target $targets
    fi
    same=$(same_as)
    [[ -z $emulated ]] || return
    step card.driver 60 nvidia-smi
    step card.library 60 bash -c "ldd '$library' | tee /dev/stderr | (! grep 'not found')"
}

# The device, its memory and copies, one after the other: they measure and fill the card's memory. Then
# every kernel.
every_kernel() {
    local kernels
    # shellcheck disable=SC2046
    each_test step "$build/test_kernels" 120 \
        $(names "$build/test_kernels" | grep -e '^cuda_memory' -e '^card_')
    kernels=$(names "$build/test_kernels" | grep -v -e '^card_' -e '^cuda_memory')
    # shellcheck disable=SC2046
    each_test beside "$build/test_kernels" 300 $(grep -v bf16 <<<"$kernels") $(grep bf16 <<<"$kernels")
    wait
}
part_own() {
    local -x ARES_TORCH_LIB=none
    how=.own every_kernel
}

part_aten() {
    beside aten.entries_on_the_cpu 470 "$build/test_kernels" --without gpu --jobs "$jobs" aten
    # shellcheck disable=SC2046
    [[ -n $emulated ]] || each_test beside "$build/test_torch" 300 $(names "$build/test_torch")
    wait
    [[ -n $emulated ]] || every_kernel # libtorch knows no emulated card
}

part_rooms() {
    for program in "$build"/test_*; do
        case $(basename "$program") in test_kernels | test_torch | test_e2e) continue ;; esac
        [[ -f $program && -x $program ]] || continue
        # shellcheck disable=SC2046
        each_test beside "$program" 300 $(names "$program")
    done
    local allow=()
    [[ -r tests/golden/unknown.txt ]] && allow=(--allow-unknown tests/golden/unknown.txt)
    beside goldens 470 env ARES_TEST_DEVICE=cuda "$build/ares-golden" tests/golden/*.json "${allow[@]}"
    wait
}

part_runs() { # the first one without libtorch
    local -x CORES=$((($(nproc) + jobs - 1) / jobs))
    [[ -n $emulated ]] || step run.grpo.own 300 env ARES_TORCH_LIB=none tests/gpu/runs.sh "$build" grpo grpo-bf16
    for name in $(LIST=1 tests/gpu/runs.sh); do
        [[ -n $emulated && $name == agents ]] && continue # minutes for its prompts
        beside "run.$name" 400 tests/gpu/runs.sh "$build" "$name"
    done
    wait
    [[ -n $emulated ]] && return # ctest's e2e.emulated has them
    # shellcheck disable=SC2046
    each_test beside "$build/test_e2e" 400 $(names "$build/test_e2e")
    wait
}

# With several cards the tests above have used them (they say SKIP with one); here ranks share one card,
# and NCCL takes each for a machine of its own, so that it sends by sockets. libtorch's comes first, as
# in the program.
part_nccl() {
    local nccl=${ARES_NCCL_LIB:-}
    for found in "$root"/.venv/lib/python*/site-packages/nvidia/nccl/lib/libnccl.so.2 \
        ${ARES_LIBTORCH:+"$ARES_LIBTORCH/../nvidia/nccl/lib/libnccl.so.2"}; do
        [[ -z $nccl && -r $found ]] && nccl=$found
    done
    [[ -n $nccl ]] || nccl=$(ldconfig -p | sed -n 's/.*libnccl\.so\.2 .*=> //p' | head -n 1)
    if [[ -n ${DRY:-} || (-n $nccl && -z $emulated) ]]; then
        step nccl.ranks_on_one_card 300 env "ARES_NCCL_LIB=$nccl" ARES_TEST_SHARES=1 \
            ARES_TEST_TRANSPORT=nccl "$build/test_dist" --label gpu nccl_gives_the_sums
    else
        echo "nccl.ranks_on_one_card: left out (no libnccl.so.2, or no card)"
    fi
}

# Our own kernels alone: libtorch is left out, and of cuBLAS nothing is watched. cuda_memory* and card_*
# copy to invalid addresses and ask for more memory than there is, on purpose.
part_sanitize() {
    local -x ARES_TORCH_LIB=none ARES_TEST_PATIENCE=20
    local sanitizer test
    sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
    if [[ -z ${DRY:-} && (! -x $sanitizer || -n $emulated) ]]; then
        echo "sanitize: left out (no compute-sanitizer, or no card)"
        return
    fi
    for tool in memcheck racecheck synccheck; do
        for program in kernels algo; do
            for test in $(names "$build/test_$program" | grep -v -e '^card_' -e '^cuda_memory'); do
                beside "$tool.$program.$test" 400 "$sanitizer" --tool $tool --error-exitcode 1 \
                    --kernel-name-exclude 'regex=cublas|cutlass|nvjet|gemm|gemv|splitK' \
                    "$build/test_$program" --label gpu "$test"
            done
        done
        wait
    done
}

[[ -n ${DRY:-} ]] || begin
for part in "${wanted[@]}"; do
    needs=test_kernels # which needs libtorch; whole runs do not
    [[ $part == runs ]] && needs=ares-train
    [[ $part == build ]] && needs=.
    if [[ -z ${DRY:-} && ! -x $build/$needs ]]; then
        echo "gpu: $build/$needs is missing; run the part build first" >&2
        exit 2
    fi
    "part_$part"
done
[[ -z ${DRY:-} ]] || exit 0
failed=$(find "$results" -name '*.failed' | wc -l)
line="gpu: $(find "$results" -name '*.ok' | wc -l) steps passed, $failed failed"
echo "# $line" >>"$summary"
echo "$line"
((failed == 0))
