#!/bin/sh
# Runs every test that needs a GPU, on a machine that has one.
#
#   tests/gpu/run.sh [BUILD_DIR]        (default: build)
#
# Builds libares_cuda.so and the tests. Then it runs the tests with the label gpu of every program
# (they fail instead of being skipped where they find no GPU), every golden through the CUDA twins
# of algo, and, where compute-sanitizer is installed, the tests of kernels and algo again under it
# (memory, races in shared memory, barriers).
# Last line: `gpu: N programs passed, N failed`; exit status 1 when one failed, 2 when nothing could
# be run.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build}
cd "$root" || exit 2
if [ ! -e /dev/nvidiactl ]; then
    echo "gpu: no CUDA device on this machine; nothing was run" >&2
    exit 2
fi
cmake -S . -B "$build" -DARES_CUDA=ON > /dev/null && cmake --build "$build" || exit 2
if [ ! -r "$build/libares_cuda.so" ]; then
    echo "gpu: $build/libares_cuda.so was not built" >&2
    exit 2
fi
command -v nvidia-smi > /dev/null &&
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

export ARES_REQUIRE_CUDA=1
passed=0
failed=0
run() {
    echo "== $*"
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}
for program in "$build"/test_*; do
    [ -x "$program" ] && [ -f "$program" ] || continue
    "$program" --list --label gpu 2> /dev/null | grep -q . || continue
    run "$program" --label gpu
done

allow=""
[ -r tests/golden/unknown.txt ] && allow="--allow-unknown tests/golden/unknown.txt"
# shellcheck disable=SC2086
run env ARES_TEST_DEVICE=cuda "$build/ares-golden" tests/golden/*.json $allow

sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
if [ -x "$sanitizer" ]; then
    # cuda_memory* asks for more memory than there is and copies to invalid addresses, on purpose
    tests=$("$build/test_kernels" --list --label gpu |
        grep -o 'cuda_[a-z0-9_]*' | grep -v cuda_memory | sort -u)
    for tool in memcheck racecheck synccheck; do
        # shellcheck disable=SC2086
        run "$sanitizer" --tool $tool --error-exitcode 1 "$build/test_kernels" --label gpu $tests
        run "$sanitizer" --tool $tool --error-exitcode 1 "$build/test_algo" --label gpu
    done
else
    echo "== compute-sanitizer: not installed, left out"
fi
echo "gpu: $passed programs passed, $failed failed"
[ "$failed" -eq 0 ]
