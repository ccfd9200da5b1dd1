#!/usr/bin/env bash
# AEPO as a whole, AEPO without each of its parts, and plain GRPO, with the same seeds, so that
# their runs can be compared one by one.
#
#   experiments/AEPO/ablation.sh [--tiny] [--seeds "1 2 3"] [--check] [key=value ...]
#   experiments/AEPO/ablation.sh --rates [...]   three learning rates of the methods that are
#                                                compared at equal tokens; give other seeds
set -euo pipefail
source "$(dirname "$0")/study.sh"
rates=0
if [[ ${1:-} == --rates ]]; then rates=1 && shift; fi
read_words "$@"
# A weight of 0 that stays 0: the reward is the accuracy alone, and HWE tokens are still counted.
accuracy_only=(algorithm.alpha_entropy_lr=0 algorithm.alpha_entropy_init_easy=0
    algorithm.alpha_entropy_init_medium=0 algorithm.alpha_entropy_init_hard=0)
no_filtering=(algorithm.online_filtering=false algorithm.drop_easy_prompts=false)
# Filtering and the bootstrap pass cost tokens, three to five times those of plain GRPO
# (RESULTS.md), which can be spent on steps.
grpo=("${accuracy_only[@]}" worker.actor.dynamic_kl_loss=false "${no_filtering[@]}"
    data.bootstrap=false)
longer=(trainer.max_steps=$((steps * 5)) trainer.val_freq=$(((steps + 3) / 4)))
if ((rates)); then
    for rate in 5e-5 1e-4 2e-4; do
        variant "full AEPO, $rate" worker.actor.optim.lr=$rate
        variant "no dropping, $rate" algorithm.drop_easy_prompts=false worker.actor.optim.lr=$rate
        variant "plain GRPO, as many tokens, $rate" "${grpo[@]}" "${longer[@]}" \
            worker.actor.optim.lr=$rate
    done
    run_study rates "AEPO and GRPO by learning rate"
    exit
fi
variant "full AEPO"
variant "no entropy reward" "${accuracy_only[@]}"
variant "no dynamic KL" worker.actor.dynamic_kl_loss=false
variant "no dropping" algorithm.drop_easy_prompts=false
variant "no filtering" "${no_filtering[@]}"
variant "plain GRPO" "${grpo[@]}"
variant "plain GRPO, as many tokens" "${grpo[@]}" "${longer[@]}"
run_study ablation "AEPO and its parts"
