#!/usr/bin/env bash
# Installs what is missing, builds, runs every test; last line `N passed, N failed`, exit status 1
# when a test failed.
#
#   scripts/test.sh [--preset release|debug|sanitize] [--without LABEL,...] [NAME ...]
#       NAME: only these ctests (core, text.slow, e2e, check_includes ...);
#           `ctest --test-dir build -N` lists them
#       --without: leave tests of these labels out (slow, mpi, gpu, source, left_out)
# Emulated cards run what is queued in another order each time; ARES_EMULATE_SEED, which is printed,
# repeats one (docs/testing.md).
# One program by hand: build/test_core [--list] [a part of a test's name ...]
set -euo pipefail
cd "$(dirname "$0")/.."

preset=release
without=""
names=()
while (($#)); do
    case $1 in
    --preset) preset=${2:?--preset takes release, debug or sanitize}; shift 2 ;;
    --without) without=${2:?--without takes labels}; shift 2 ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "test: '$1': no such option (see --help)" >&2; exit 2 ;;
    *) names+=("$1"); shift ;;
    esac
done
case $preset in
release) build=build ;;
debug | sanitize) build=build-$preset ;;
*) echo "test: --preset = '$preset': unknown (choices: release, debug, sanitize)" >&2; exit 2 ;;
esac

scripts/setup.sh
if ! scripts/fetch_smollm2.sh; then
    [[ ${CI:-} == true ]] && { echo "test: no model, and CI=true: that is a failure" >&2; exit 1; }
    echo "test: going on without the real model; its tests will say SKIP"
fi

mkdir -p "$build"
quietly() { # shows a step's output only when it failed
    "$@" >"$build/step.log" 2>&1 && return
    cat "$build/step.log"
    echo "test: failed: $*"
    echo "0 passed, 1 failed"
    exit 1
}
start=$SECONDS
quietly cmake --preset "$preset" ${ARES_CMAKE_ARGS:-}
quietly cmake --build "$build" -j "$(nproc)"
export ARES_EMULATE_SEED=${ARES_EMULATE_SEED:-$(date +%s)}
echo "test: $build is built ($((SECONDS - start)) s); ARES_EMULATE_SEED=$ARES_EMULATE_SEED"

select=(--test-dir "$build" --no-tests=error -V)
((${#names[@]})) && select+=(-R "^($(IFS='|'; echo "${names[*]//./\\.}"))\$")
[[ -n $without ]] && select+=(-LE "^(${without//,/|})\$")

# Two programs at a time: in many, most tests wait, for other ranks, a server, or a model that one of
# them trains. Such models are trained once for all programs.
kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT
export ARES_TEST_KEPT=$kept
# Tests start python3 hundreds of times: by itself, not by a script that looks for it each time.
if python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))'); then
    mkdir "$kept/bin" && ln -s "$python" "$kept/bin/python3"
    export PATH=$kept/bin:$PATH
fi

# ctest -V prefixes each line of a test with its number, #N in the line that says how it ended. A
# program that names no totals counts as one test.
start=$SECONDS
{ ctest -j 2 "${select[@]}" </dev/null 2>&1 || true; } | tee "$build/test.log" | awk '
    function number(text, word,    at) {
        return match(text, "[0-9]+ " word) ? substr(text, RSTART, RLENGTH) + 0 : 0
    }
    /^ *[0-9]+\/[0-9]+ +Test +#[0-9]+:/ {
        name = $0; sub(/^[^:]*: +/, "", name); sub(/ .*/, "", name)
        n = $0; sub(/^[^#]*#/, "", n); n += 0
        good = /   Passed /
        p = number(totals[n], "passed"); f = number(totals[n], "failed")
        s = number(totals[n], "skipped")
        if (totals[n] == "" && good) p = 1
        if (!good && f == 0) f = 1
        if (!good) printf "%s", output[n]
        else printf "%s", notes[n]
        time = match($0, /[0-9.]+ sec/) ? substr($0, RSTART, RLENGTH) : ""
        printf "%-4s %-16s %4d passed, %d failed, %d skipped (%s)\n", good ? "ok" : "FAIL", name,
            p, f, s, time
        fflush()
        passed += p; failed += f; skipped += s; ran++
        delete output[n]
        next
    }
    /^[0-9]+: / {
        n = $0 + 0
        sub(/^[0-9]+: /, "")
        if (/^Test command:|^Working Directory:|^Environment variables:/) next
        if (/^Test timeout computed/) next
        if (/^ (ASAN|LSAN|UBSAN)_OPTIONS=/) next
        output[n] = output[n] $0 "\n"
        if (/^SKIP /) notes[n] = notes[n] "     " $0 "\n"
        if (/[0-9]+ passed, [0-9]+ failed/) totals[n] = $0
    }
    END {
        if (!ran) { print "test: ctest ran nothing"; failed++ }
        if (skipped) print skipped " skipped"
        printf "%d passed, %d failed\n", passed, failed
        exit failed > 0
    }'
