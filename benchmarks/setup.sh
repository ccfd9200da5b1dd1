#!/usr/bin/env bash
# Makes .venv-peers, the environment of benchmarks/peers/*.py: PyTorch, transformers, TRL, PEFT and
# the Python environments as benchmarks/peers/requirements.txt pins them. Apart from the project's own
# .venv, which holds libtorch only. Does nothing when it is there and as listed. 3 GB to fetch, 5 GB
# on disk: PyTorch's Python side loads its CUDA libraries on a machine without a GPU too.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${ARES_PEERS_VENV:-.venv-peers}
list=benchmarks/peers/requirements.txt

say() { echo "benchmarks/setup: $*"; }
fail() { echo "benchmarks/setup: $*" >&2; exit 1; }

# The list is copied last, so that an unfinished environment is continued.
if cmp -s "$list" "$venv/ares-complete" && "$venv/bin/python" -c '' 2>/dev/null; then
    say "$venv is there"
    exit 0
fi
command -v python3 >/dev/null || fail "no python3; run scripts/setup.sh"
[[ -x $venv/bin/python ]] || python3 -m venv "$venv" ||
    fail "this Python cannot make an environment; apt-get install python3-venv"
echo '*' >"$venv/.gitignore"
rm -f "$venv/ares-complete"
say "installing into $venv (3 GB, some minutes)"
PIP_ROOT_USER_ACTION=ignore "$venv/bin/python" -m pip install --quiet \
    --disable-pip-version-check --no-input -r "$list" </dev/null ||
    fail "could not install what $list lists; is there a network?"
"$venv/bin/python" -W ignore -c 'import torch, transformers, trl, peft, gymnasium, gym_sokoban' \
    2>/dev/null || fail "$venv was made but does not import what $list lists"
cp "$list" "$venv/ares-complete"
say "$venv is ready"
