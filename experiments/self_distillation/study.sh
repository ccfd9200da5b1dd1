#!/usr/bin/env bash
# SmolLM2-135M taught by itself with worked sums, beside GRPO and supervised training on them, at as
# many answers and steps, and at as many questions (sft_of_8); seeds 1 to 5, each arm at the learning rate of two that was better with
# seed 6 (RESULTS.md).
#
#   experiments/self_distillation/study.sh
#
# --jobs N: runs side by side (1), of one thread each. Runs that are finished are skipped,
# interrupted ones go on. A seed draws the same questions in the same order for both arms that answer
# them, so that their runs are pairs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=${ARES_TRAIN:-build/ares-train}
home=runs/self_distillation
here=experiments/self_distillation
jobs=1
case ${1:-} in
-h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' $here/study.sh && exit ;;
esac
if [[ ${1:-} == --jobs ]]; then jobs=${2:?"--jobs needs a number"} && shift 2; fi
for need in "$program" models/SmolLM2-135M-Instruct/config.json; do
    [[ -e $need ]] || { echo "study.sh: no $need; scripts/quickstart.sh makes it" >&2; exit 2; }
done
mkdir -p $home
[[ -e $home/train.jsonl ]] || python3 $here/tables.py rows examples/data/arithmetic/train.jsonl \
    >$home/train.jsonl

# Greedy answers to the validation's questions, judged; the others do this at their end.
judge() { # MODEL FILE
    "$program" eval --config $here/config.yaml worker.actor.model.model_path="$1" >"$2.part"
    mv "$2.part" "$2"
}

train() { # ARM RATE SEED
    local run=$home/$1/$2/$3 words=(worker.actor.optim.lr="$2" data.seed="$3")
    [[ ! -e $run/judged ]] || return 0
    mkdir -p "$(dirname "$run")"
    case $1 in
    itself) "$program" --config $here/config.yaml --config $here/itself.yaml "${words[@]}" \
        worker.rollout.seed="$3" trainer.run_dir="$run" ;;
    grpo) "$program" --config $here/config.yaml "${words[@]}" worker.rollout.seed="$3" \
        trainer.run_dir="$run" ;;
    sft*) [[ $1 == sft ]] || words+=(sft.batch_size=8) # as many questions as the others
        "$program" sft --config $here/sft.yaml "${words[@]}" trainer.run_dir="$run"
        judge "$run" "$run/val.txt" ;;
    esac
    touch "$run/judged"
    rm -rf "$run"/checkpoints # the tables need none
}

started=()
together() { # ARM RATE SEED: beside others
    while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done # a failed run ends the study
    train "$@" >"$home/$1_$2_$3.log" 2>&1 ||
        { echo "study.sh: $* failed: see $home/$1_$2_$3.log" >&2; return 1; } &
    started+=($!)
}
finish() {
    for id in "${started[@]}"; do wait "$id"; done
    started=()
}

[[ -e $home/untaught.txt ]] || judge models/SmolLM2-135M-Instruct $home/untaught.txt
for rate in 1e-4 2e-5; do
    for arm in itself sft grpo sft_of_8; do together $arm $rate 6; done
done
finish
best=$(python3 $here/tables.py best)
for seed in {1..5}; do
    while read -r arm rate; do together "$arm" "$rate" "$seed"; done <<<"$best"
done
finish
