#!/usr/bin/env bash
# Measures P1 to P18 (or those named), ours and the peers' in turn, and writes benchmarks/results;
# about twenty minutes on two cores.
#
#   benchmarks/run.sh [P1 P2 ... P18] [--rounds N] [--prefix "chrt -f 1"]
#
# ARES_BUILD names another build folder. Needs .venv-peers (benchmarks/setup.sh) and
# models/SmolLM2-135M-Instruct (scripts/fetch_smollm2.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
build=${ARES_BUILD:-build}
venv=${ARES_PEERS_VENV:-.venv-peers}

benchmarks/setup.sh >&2
[[ -f models/SmolLM2-135M-Instruct/model.safetensors ]] || scripts/fetch_smollm2.sh >&2
[[ -f $build/CMakeCache.txt ]] || cmake -S . -B "$build" >&2
cmake --build "$build" -j "$(nproc)" --target ares-train bench_limit bench_step bench_linear \
    bench_head bench_verifiers bench_algo bench_agents bench_media bench_vision >&2
exec "$venv/bin/python" benchmarks/compare.py --build "$build" "$@"
