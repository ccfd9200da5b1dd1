#!/bin/bash
# Two signals in one loss, on a tiny model: minutes on one core (RESULTS.md).
#
#   experiments/VAPOR/study.sh [SEED ...]     default: 1 2 3 4 5
#
# Runs that are finished are skipped, interrupted ones go on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=${ARES_TRAIN:-build/ares-train}
here=experiments/VAPOR
seeds=${*:-1 2 3 4 5}
[[ -x $program ]] || { echo "study.sh: no $program; build it (scripts/quickstart.sh does)" >&2; exit 2; }

python3 $here/prepare.py runs/vapor/data
[[ -d runs/vapor/init ]] ||
    $program init --arch qwen2 --hidden 32 --layers 2 --heads 2 --kv-heads 1 --seed 3 \
        --out runs/vapor/init
[[ -e runs/vapor/warm/DONE ]] ||
    $program sft data.train_files=runs/vapor/data/examples.jsonl sft.batch_size=16 \
        worker.actor.model.model_path=runs/vapor/init worker.actor.optim.lr=5e-3 \
        trainer.max_steps=300 trainer.val_freq=-1 trainer.run_dir=runs/vapor/warm > runs/vapor/warm.log 2>&1

words_of() { # method
    case $1 in
    both) words=() ;;
    span) words=(vapor.beta=0) ;;
    detached) words=(vapor.preference_detach=true) ;;
    grpo) # judges the same digit: it is the last number of an answer
        words=(algorithm.name=null algorithm.use_kl_loss=true algorithm.kl_coef=0.1
            "worker.reward.rewards=[{name: number}]") ;;
    dpo | dpo_bare) # the pairs alone: scores are 0, but right answers are counted
        words=(vapor.beta=0 vapor.dpo_coef=1 "worker.reward.rewards=[{name: exact, weight: 0}]")
        [[ $1 == dpo ]] || words+=(vapor.kl_coef=0) ;;
    span_dpo) words=(vapor.beta=0 vapor.dpo_coef=1) ;;
    esac
}
runs=()
for seed in $seeds; do
    for name in both span detached grpo dpo dpo_bare span_dpo; do
        run=runs/vapor/$name/$seed
        words_of $name
        [[ -e $run/DONE ]] ||
            $program --config $here/tiny.yaml "${words[@]}" worker.rollout.seed=$seed \
                data.seed=$seed trainer.run_dir=$run trainer.logger=[console] > runs/vapor/$name.$seed.log 2>&1 ||
            { echo "study.sh: $run failed: see runs/vapor/$name.$seed.log" >&2; exit 1; }
        runs+=("$name=$run")
    done
done
$program compare --metric reward/accuracy --last 20 --smooth 10 \
    --title "right digits (training, temperature 1)" --svg $here/results/accuracy.svg "${runs[@]}"
python3 $here/summarize.py runs/vapor $seeds
