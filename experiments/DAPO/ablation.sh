#!/usr/bin/env bash
# DAPO as a whole, DAPO without each of its four techniques, and GRPO at as many steps and at as many
# tokens, with the same seeds, so that
# their runs can be compared one by one.
#
#   experiments/DAPO/ablation.sh [--tiny] [--seeds "1 2 3 4 5"] [--check] [key=value ...]
set -euo pipefail
here=experiments/DAPO
source "$(dirname "$0")/../AEPO/study.sh"
read_words "$@"

# The model, once; the tiny one is that of AEPO's supervised start.
start() {
    if [[ $model == tiny ]]; then tiny_start; else scripts/fetch_smollm2.sh; fi
}

figure() { # OUT METRIC TITLE
    "$program" compare --smooth 4 --metric "$2" --svg "$1" --title "$3" "${runs[@]}" | grep figure:
}

draw() { # OUT TITLE
    local columns=reward/accuracy,actor/entropy,response_length/mean
    columns+=,dapo/num_gen_rounds,sum:rollout/generated_tokens,sum:timing_s/step
    "$program" compare --last $(((steps + 3) / 4)) --smooth 1 --metric val/accuracy \
        --columns $columns --svg "$1/accuracy.svg" --title "$2" "${runs[@]}" | tee "$1/table.md"
    figure "$1/entropy.svg" actor/entropy "$2: entropy of tokens"
    figure "$1/length.svg" response_length/mean "$2: length of responses"
}

no_clip_higher=(worker.actor.clip_ratio_high=0.2)
no_sampling=(algorithm.filter_groups.enable=false)
no_token_loss=(worker.actor.loss_avg_mode=seq-mean-token-mean)
no_overlong=(worker.reward.len_reward_penalty=0)
variant "full DAPO"
variant "no clip-higher" "${no_clip_higher[@]}"
variant "no dynamic sampling" "${no_sampling[@]}"
variant "no token-level loss" "${no_token_loss[@]}"
variant "no overlong shaping" "${no_overlong[@]}"
# without the four, and without what the recipe has besides them
grpo=("${no_clip_higher[@]}" "${no_sampling[@]}" "${no_token_loss[@]}" "${no_overlong[@]}"
    algorithm.normalize_advantages=false worker.actor.early_stop_imp_ratio=null)
variant "GRPO" "${grpo[@]}"
# with about as many tokens as full DAPO spends on its draws (RESULTS.md)
variant "GRPO, as many tokens" "${grpo[@]}" trainer.max_steps=$((steps * 29 / 10))
run_study ablation "DAPO and its parts"
