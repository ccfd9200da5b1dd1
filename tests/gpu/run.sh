#!/usr/bin/env bash
# Everything that the first hour on a machine with a card needs, in the order of what is most likely
# to break: the build, the card, the device, every kernel beside the CPU's (fp32 first, then bf16) with
# our own products and attention, then with libtorch's, captured graphs, goldens through the twins of
# algo, two steps of every algorithm and over pictures beside the CPU, and the kernels' tests under
# compute-sanitizer.
#
#   tests/gpu/run.sh [BUILD_DIR]        (default: build)
#
# Each step is bounded by a timeout, and a failure does not stop the next one. BUILD_DIR/gpu holds
# the output of each step and summary.txt: one line per step with its status and seconds.
# DRY=1 only lists the steps. ARES_CUDA_LIB names another libares_cuda.so, whose driver may be an
# emulator; then the card itself is not asked for.
# Last line: `gpu: N steps passed, N failed`; exit status 1 when one failed, 2 when nothing could be
# run.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(realpath -m "${1:-$root/build}")
cd "$root" || exit 2
out=$build/gpu
mkdir -p "$out"
rm -f "$out"/*.log
summary=$out/summary.txt
passed=0 failed=0

step() { # name, seconds at most, command...: its output goes to name.log
    local name=$1 limit=$2 rc=0 begun=$SECONDS
    shift 2
    if [[ -n ${DRY:-} ]]; then
        echo "$name: $*"
        return
    fi
    timeout -k 20 "$limit" "$@" >"$out/$name.log" 2>&1 </dev/null || rc=$?
    local line="ok"
    if ((rc == 0)); then passed=$((passed + 1)); else
        failed=$((failed + 1))
        line="FAIL (exit $rc)"
        ((rc == 124 || (rc == 137 && SECONDS - begun >= limit))) && line="FAIL (more than $limit s)"
    fi
    printf '%-60s %s, %d s\n' "$name" "$line" $((SECONDS - begun)) | tee -a "$summary"
    ((rc == 0)) || grep -E 'FAIL|failed|rror' "$out/$name.log" | tail -n 6 | sed 's/^/    /'
    return $rc
}
names() { # program, words of --list: one test per line
    "$@" --list --label gpu 2>/dev/null | sed 's/[ :].*//' | grep -E '^[a-z]' | sort -u
}
each_test() { # program, seconds for one test, names...: one process per test, so that one that
              # hangs or breaks the card's context takes no other with it
    local program=$1 limit=$2
    shift 2
    for test; do step "$(basename "$program").$test$how" "$limit" "$program" --label gpu "$test"; done
}
how="" # added to the names of steps

if [[ ! -e /dev/nvidiactl && -z ${ARES_CUDA_LIB:-} && -z ${DRY:-} ]]; then
    echo "gpu: no CUDA device on this machine; nothing was run" >&2
    exit 2
fi
export ARES_REQUIRE_CUDA=1
{
    date -u +"%F %H:%M UTC"
    git rev-parse --short HEAD 2>/dev/null
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
    nvcc --version 2>/dev/null | tail -n 2 | head -n 1
} >"$summary"
cat "$summary"

# 1. the build, and whether the libraries load
cuda=ON
[[ -n ${ARES_CUDA_LIB:-} ]] && cuda=AUTO
step build.configure 300 cmake -S . -B "$build" -DARES_CUDA=$cuda
step build 3000 cmake --build "$build" -j "$(nproc)"
[[ -n ${DRY:-} || -x $build/test_kernels ]] || exit 2
if [[ -z ${ARES_CUDA_LIB:-} ]]; then
    step card.driver 60 nvidia-smi
    step card.library 60 bash -c "ldd '$build/libares_cuda.so' | tee /dev/stderr | (! grep 'not found')"
fi

# 2. the device opens, and its memory and copies work; then every kernel beside the CPU's. Our own
# products and attention first: what libtorch's do wrong shows by itself, in part 3
kernels=$(names "$build/test_kernels" | grep -v -e '^card_' -e '^cuda_memory')
every_kernel() {
    # shellcheck disable=SC2046
    each_test "$build/test_kernels" 120 \
        $(names "$build/test_kernels" | grep -e '^cuda_memory' -e '^card_')
    # shellcheck disable=SC2046
    each_test "$build/test_kernels" 300 $(grep -v bf16 <<<"$kernels")
    # shellcheck disable=SC2046
    each_test "$build/test_kernels" 300 $(grep bf16 <<<"$kernels")
}
own() { # command...: without libtorch's products and attention on the card
    local -x ARES_TORCH_LIB=/none
    how=.own
    "$@"
    how=""
}
own every_kernel

# 3. libtorch: its table on the CPU, which needs no card, its own product on the card, and the kernels
# once more with its products and attention. A library that ARES_CUDA_LIB names takes none of them
step aten.entries_on_the_cpu 600 "$build/test_kernels" --without gpu aten
# shellcheck disable=SC2046
each_test "$build/test_torch" 300 $(names "$build/test_torch")
if [[ -z ${ARES_CUDA_LIB:-} ]]; then
    # a device that libtorch cannot serve keeps our own and says why
    step aten.is_taken 120 bash -c "set -o pipefail
        '$build/test_kernels' --label gpu cuda_memory_is_zeroed 2>&1 | tee /dev/stderr |
        awk '/instead of libtorch/ { own = 1 } / 1 passed/ { ran = 1 } END { exit own || !ran }'"
    every_kernel
fi

# 4. the other rooms
for program in "$build"/test_*; do
    case $(basename "$program") in test_kernels | test_torch | test_e2e) continue ;; esac
    [[ -f $program && -x $program ]] || continue
    # shellcheck disable=SC2046
    each_test "$program" 300 $(names "$program")
done
allow=()
[[ -r tests/golden/unknown.txt ]] && allow=(--allow-unknown tests/golden/unknown.txt)
step goldens 900 env ARES_TEST_DEVICE=cuda "$build/ares-golden" tests/golden/*.json "${allow[@]}"

# 5. whole runs, the first one without libtorch
own step run.grpo.own 300 tests/gpu/runs.sh "$build" grpo grpo-bf16
step run.grpo 300 tests/gpu/runs.sh "$build" grpo
step run.vision 600 tests/gpu/runs.sh "$build" vision vision-bf16
[[ -z ${ARES_CUDA_LIB:-} ]] || export WITHOUT=agents # an emulator needs minutes for its prompts
step runs 3000 tests/gpu/runs.sh "$build"
# shellcheck disable=SC2046
[[ -x $build/test_e2e ]] && each_test "$build/test_e2e" 600 $(names "$build/test_e2e")

# 6. NCCL between ranks. With several cards the tests above have used them (they say SKIP with one);
# here ranks share one card, and NCCL takes each for a machine of its own, so that it sends by sockets
nccl=${ARES_NCCL_LIB:-$(ldconfig -p | sed -n 's/.*libnccl\.so\.2 .*=> //p' | head -n 1)}
for found in "$root"/.venv/lib/python*/site-packages/nvidia/nccl/lib/libnccl.so.2; do
    [[ -z $nccl && -r $found ]] && nccl=$found
done
if [[ -n $nccl && -z ${ARES_CUDA_LIB:-} ]]; then
    step nccl.ranks_on_one_card 300 env "ARES_NCCL_LIB=$nccl" ARES_TEST_SHARES=1 \
        ARES_TEST_TRANSPORT=nccl "$build/test_dist" --label gpu nccl_gives_the_sums
else
    echo "nccl.ranks_on_one_card: left out (no libnccl.so.2, or no card)" | tee -a "$summary"
fi

# 7. memory, races in shared memory, barriers
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
if [[ -x $sanitizer && -z ${ARES_CUDA_LIB:-} ]]; then
    # cuda_memory* asks for more memory than there is and copies to invalid addresses, on purpose
    for tool in memcheck racecheck synccheck; do
        # shellcheck disable=SC2086
        step "sanitizer.$tool.kernels" 1200 env ARES_TEST_PATIENCE=10 "$sanitizer" --tool $tool --error-exitcode 1 \
            "$build/test_kernels" --label gpu $kernels
        step "sanitizer.$tool.algo" 900 env ARES_TEST_PATIENCE=10 "$sanitizer" --tool $tool --error-exitcode 1 \
            "$build/test_algo" --label gpu
    done
else
    echo "compute-sanitizer: left out" | tee -a "$summary"
fi
echo "gpu: $passed steps passed, $failed failed" | tee -a "$summary"
((failed == 0))
