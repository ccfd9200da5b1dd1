#!/bin/bash
# Two signals in one loss, on a tiny model: each method at its own learning rate (RESULTS.md).
#
#   experiments/VAPOR/study.sh rates          a grid of learning rates, with two seeds that are used
#                                             for nothing else
#   experiments/VAPOR/study.sh [SEED ...]     all methods at the rates chosen; default: 1 to 10
#
# Runs that are finished are skipped, interrupted ones go on. Then
# `python3 experiments/VAPOR/tables.py collect` puts what is kept of all runs into
# results/data.json, from which the tables of RESULTS.md are made.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=${ARES_TRAIN:-build/ares-train}
here=experiments/VAPOR home=runs/vapor
[[ -x $program ]] || { echo "study.sh: no $program; build it (scripts/quickstart.sh does)" >&2; exit 2; }

python3 $here/prepare.py $home/data
[[ -d $home/init ]] ||
    $program init --arch qwen2 --hidden 32 --layers 2 --heads 2 --kv-heads 1 --seed 3 \
        --out $home/init
[[ -e $home/warm/DONE ]] ||
    $program sft data.train_files=$home/data/examples.jsonl sft.batch_size=16 \
        worker.actor.model.model_path=$home/init worker.actor.optim.lr=5e-3 trainer.threads=1 \
        trainer.max_steps=300 trainer.val_freq=-1 trainer.run_dir=$home/warm > $home/warm.log 2>&1

frozen=(vapor.sync_ref_model=false)
moving=(vapor.sync_ref_model=true vapor.ref_model_sync_steps=10)
narrow=(vapor.epsilon_high=0.2)
wide=(vapor.epsilon_high=4)

method() { # NAME: its options, the learning rates of the grid, and the one chosen
    rates="3e-4 1e-3 3e-3"
    case $1 in
    both_moving) words=("${moving[@]}" "${narrow[@]}") rate=1e-3 ;;
    both_frozen) words=("${frozen[@]}" "${narrow[@]}") rates="1e-4 3e-4 1e-3" rate=1e-4 ;;
    both_frozen_wide) words=("${frozen[@]}" "${wide[@]}") rates="1e-4 3e-4 1e-3" rate=3e-4 ;;
    span) words=("${moving[@]}" "${narrow[@]}" vapor.beta=0) rate=3e-3 ;;
    dpo) # the pairs alone: scores are 0, but right answers are counted
        words=("${frozen[@]}" vapor.beta=0 vapor.dpo_coef=1
            "worker.reward.rewards=[{name: exact, weight: 0}]") rate=1e-3
        ;;
    grpo) # judges the same digit: it is the last number of an answer
        words=(algorithm.name=null algorithm.use_kl_loss=true algorithm.kl_coef=0.1
            "worker.reward.rewards=[{name: number}]") rate=1e-3
        ;;
    # with two seeds only
    both_moving_wide) words=("${moving[@]}" "${wide[@]}") rates="3e-4 1e-3" ;;
    detached)
        words=("${moving[@]}" "${narrow[@]}" vapor.preference_detach=true) rates="3e-4 1e-3" ;;
    span_dpo)
        words=("${moving[@]}" "${narrow[@]}" vapor.beta=0 vapor.dpo_coef=1) rates="3e-4 1e-3" ;;
    esac
}

train() { # RUN METHOD RATE SEED
    [[ ! -e $home/$1/DONE ]] || return 0
    mkdir -p "$home/${1%/*}"
    $program --config $here/tiny.yaml "${words[@]}" worker.actor.optim.lr="$3" \
        worker.rollout.seed="$4" data.seed="$4" trainer.threads=1 'trainer.logger=[file]' \
        trainer.run_dir=$home/"$1" > "$home/$1.log" 2>&1 ||
        { echo "study.sh: $home/$1 failed: see $home/$1.log" >&2; exit 1; }
}

methods="both_moving both_frozen both_frozen_wide grpo dpo span"
if [[ ${1:-} == rates ]]; then
    for seed in 101 102; do
        for name in $methods both_moving_wide detached span_dpo; do
            method $name
            for rate in $rates; do train "rates/$name/$rate/$seed" $name "$rate" $seed; done
        done
    done
    exit
fi
runs=()
for seed in ${*:-1 2 3 4 5 6 7 8 9 10}; do
    for name in $methods; do
        method $name
        train "study/$name/$seed" $name $rate "$seed"
        runs+=("$name=$home/study/$name/$seed")
    done
done
$program compare --metric reward/accuracy --last 20 --smooth 10 --band error \
    --title "right digits (training, temperature 1)" --svg $here/results/accuracy.svg "${runs[@]}"
