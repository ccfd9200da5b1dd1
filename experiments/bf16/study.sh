#!/usr/bin/env bash
# Products in fp32 beside products in bf16: AEPO on the tiny model, seeds 1 to 5 (RESULTS.md).
#
#   experiments/bf16/study.sh
#
# --jobs N: runs side by side (1). Runs that are finished are skipped, interrupted ones go on. The
# same seeds draw the same questions in the same order, so that runs of two arithmetics are pairs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=${ARES_TRAIN:-build/ares-train}
home=runs/bf16
jobs=1
case ${1:-} in
-h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' experiments/bf16/study.sh && exit ;;
esac
if [[ ${1:-} == --jobs ]]; then jobs=${2:?"--jobs needs a number"} && shift 2; fi
if [[ ! -x $program ]]; then
    echo "study.sh: no $program; build it (scripts/quickstart.sh does)" >&2
    exit 2
fi

train() { # ARITHMETIC SEED
    local run=$home/$1/$2
    [[ ! -e $run/DONE ]] || return 0
    mkdir -p "$run"
    "$program" --config experiments/AEPO/config.yaml --config experiments/AEPO/tiny.yaml \
        --config experiments/bf16/config.yaml trainer.run_dir="$run" \
        worker.actor.arithmetic="$1" worker.rollout.seed="$2" data.seed="$2" >"$run.log" 2>&1 ||
        { echo "study.sh: $run failed: see $run.log" >&2; return 1; }
    rm -rf "$run/checkpoints" # the tables need none
}

# the start: the first part of the supervised start of ../AEPO, in fp32
[[ -d $home/start || -d models/tiny ]] || "$program" init --arch qwen2 --out models/tiny --seed 1
[[ -d $home/start ]] || "$program" sft --config experiments/AEPO/tiny_sft.yaml \
    trainer.max_steps=533 trainer.run_dir=$home/start
started=()
for seed in {1..5}; do
    for arithmetic in fp32 bf16; do
        while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done # a failed run ends the study
        train $arithmetic "$seed" &
        started+=($!)
    done
done
for id in "${started[@]}"; do wait "$id"; done
