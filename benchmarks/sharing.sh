#!/usr/bin/env bash
# Memory of rank 0 and seconds of a step of two ranks that share nothing, of two that share the
# optimizer's states, and of one rank with as many threads as the two have together, in turn
# (docs/ranks.md#sharing). JSON lines: the medians of each run's steps after the first.
#
#   benchmarks/sharing.sh [ranks=2] [steps=5] [rounds=2] [threads=1] [model=DIR] [extra="..."]
#       DIR: a model; without it the random tiny one. extra: further options of both sides
#
# ARES_BUILD names another build folder.
set -euo pipefail
cd "$(dirname "$0")/.."
ranks=2 steps=5 rounds=2 threads=1 model='' extra=''
for word; do
    case $word in
    ranks=* | steps=* | rounds=* | threads=* | model=* | extra=*)
        declare "${word%%=*}=${word#*=}" ;;
    *) echo "sharing.sh: '$word': no such option" >&2; exit 2 ;;
    esac
done
program=$PWD/${ARES_BUILD:-build}/ares-train
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$model" ]; then
    model=$work/tiny
    "$program" init --arch qwen2 --seed 1 --out "$model" >/dev/null
fi

# train NAME RANKS THREADS FSDP_SIZE
train() {
    # shellcheck disable=SC2086
    "$program" train --ranks "$2" trainer.run_dir="$work/$1" worker.actor.fsdp.fsdp_size="$4" \
        worker.actor.model.model_path="$model" data.train_files=examples/data/sums/train.jsonl \
        data.rollout_batch_size=4 worker.actor.global_batch_size=4 worker.rollout.n=4 \
        data.max_response_length=32 worker.rollout.ignore_eos=true algorithm.disable_kl=true \
        'worker.reward.rewards=[{name: random}]' trainer.max_steps="$steps" trainer.save_freq=-1 \
        trainer.save_model_only=true trainer.threads="$3" $extra >"$work/$1.out" 2>&1 ||
        { cat "$work/$1.out" >&2; exit 1; }
}

# median NAME METRIC; null: the run has no such metric
median() {
    grep -o "\"$2\": *[0-9.e+-]*" "$work/$1/metrics.jsonl" | sed 's/.*: *//' | tail -n +2 | sort -g |
        awk '{ x[NR] = $1 } END { if (NR) printf "%.4g", x[int((NR + 1) / 2)]; else printf "null" }'
}

for round in $(seq "$rounds"); do
    for how in none states alone; do
        name=$how-$round
        case $how in
        none) train "$name" "$ranks" "$threads" 1 ;;
        states) train "$name" "$ranks" "$threads" -1 ;;
        alone) train "$name" 1 $((ranks * threads)) 1 ;;
        esac
        printf '{"shared": "%s", "ranks": %d, "model": "%s", "memory_gib": %s, "update_s": %s, "step_s": %s, "dist_gb": %s}\n' \
            "$how" "$([ $how = alone ] && echo 1 || echo "$ranks")" "$(basename "$model")" \
            "$(median "$name" perf/max_memory_allocated_gb)" "$(median "$name" timing_s/update_actor)" \
            "$(median "$name" timing_s/step)" "$(median "$name" dist/gb)"
    done
done
