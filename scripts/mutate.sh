#!/usr/bin/env bash
# Plants small faults (mutants) in the source, one at a time, and counts those that no test sees.
# docs/testing.md says how to read the result. Takes hours: run by hand, not in CI. What is done is
# kept, so that a second call goes on where one stopped.
#
#   scripts/mutate.sh [--count N] [--seed S] [--room ROOM]... [--jobs J]
#                   a sample; ends with a table of rooms
#       --count     mutants in all (300); a greater number goes on with the same sample
#       --seed      another sample (1)
#       --room      only this room: train, rollout, algo, data, reward, io, model, kernels; may be
#                   given several times
#       --spread    lines (as the rooms' lines) or even (the same number per room)
#       --jobs      so many mutants at once, each in a build tree of its own (1)
#       --quick     the fast tests only: judge what survives them before it meets test_e2e in a
#                   second call
#       --again     meet the survivors once more, after new tests
#       --fresh     forget all results: after the source has changed
#       --no-sandbox  where the kernel lets nobody make namespaces: mutants then run with all your
#                   rights
#   scripts/mutate.sh --only FILE:LINE [--count N]   the sampled mutants of a line again; where
#                   there are none, the first N (1)
#       --e2e PART  here or above: survivors meet only the tests of test_e2e with PART in their
#                   names; may be given several times; survivors that these do not kill stay open
#   scripts/mutate.sh --list-survivors [--room ROOM] every survivor as a diff, in the form of
#                   tests/mutants_equivalent.txt
#   scripts/mutate.sh --table                        the table of what is done so far
#
# Everything lies in build-mutate/: the mutator (fetched from PyPI once), copies of the working
# tree, results.jsonl.
set -euo pipefail
cd "$(dirname "$0")/.."
mutator=universalmutator
version=1.14.1
venv=build-mutate/venv

fail() { echo "mutate: $*" >&2; exit 1; }

case " $* " in
*" -h "* | *" --help "*) sed -n '2,29s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
for tool in git cmake ninja python3; do
    command -v "$tool" >/dev/null ||
        fail "$tool: not found; scripts/setup.sh installs what the build needs"
done
if [[ ! -e $venv/$mutator-$version ]]; then
    echo "mutate: fetching $mutator $version into $venv"
    rm -rf "$venv"
    mkdir -p build-mutate
    # What it depends on serves modes of it that are not used here.
    { python3 -m venv "$venv" && "$venv/bin/python" -m pip install --quiet \
        --disable-pip-version-check --no-input --no-deps "$mutator==$version"; } \
        </dev/null >build-mutate/venv.log 2>&1 ||
        fail "$mutator $version: not fetched ($(grep -v '^$' build-mutate/venv.log | tail -n 1));" \
            "needs a network once, and python3-venv"
    touch "$venv/$mutator-$version"
fi
exec "$venv/bin/python" scripts/mutate.py "$@"
