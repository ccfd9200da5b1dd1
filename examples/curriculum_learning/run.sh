#!/usr/bin/env bash
# Trains on the published mixture, or on the small one, and goes on where a run was stopped.
#
#   examples/curriculum_learning/run.sh                the small one, on SmolLM2-135M-Instruct
#   examples/curriculum_learning/run.sh qwen3_8b       the published values; 8 ranks
#
# Further words are options of ares-train: run.sh small trainer.max_steps=5
set -euo pipefail
cd "$(dirname "$0")/../.."
here=examples/curriculum_learning
size=${1:-small}
if (($#)); then shift; fi
case $size in
small) build/ares-train --config $here/math_if_small.yaml "$@" ;;
qwen3_8b)
    build/ares-train --ranks 8 --config $here/math_if_qwen3_8b.yaml \
        --config $here/eval_math_if.yaml trainer.device=cuda "$@"
    ;;
*)
    echo "run.sh: '$size': no such run (choices: small, qwen3_8b)" >&2
    exit 2
    ;;
esac
