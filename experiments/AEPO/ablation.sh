#!/usr/bin/env bash
# AEPO as a whole, AEPO without each of its parts, and plain GRPO, with the same seeds, so that
# their runs can be compared one by one.
#
#   experiments/AEPO/ablation.sh [--tiny] [--seeds "1 2 3"] [--check] [key=value ...]
set -euo pipefail
source "$(dirname "$0")/study.sh"
read_words "$@"
# A weight of 0 that stays 0: the reward is the accuracy alone, and HWE tokens are still counted.
accuracy_only=(algorithm.alpha_entropy_lr=0 algorithm.alpha_entropy_init_easy=0
    algorithm.alpha_entropy_init_medium=0 algorithm.alpha_entropy_init_hard=0)
no_filtering=(algorithm.online_filtering=false algorithm.drop_easy_prompts=false)
variant "full AEPO"
variant "no entropy reward" "${accuracy_only[@]}"
variant "no dynamic KL" worker.actor.dynamic_kl_loss=false
variant "no dropping" algorithm.drop_easy_prompts=false
variant "no filtering" "${no_filtering[@]}"
grpo=("${accuracy_only[@]}" worker.actor.dynamic_kl_loss=false "${no_filtering[@]}"
    data.bootstrap=false)
variant "plain GRPO" "${grpo[@]}"
# Filtering and the bootstrap pass cost tokens, three to five times those of plain GRPO
# (RESULTS.md); this variant spends some of them on steps.
variant "plain GRPO longer" "${grpo[@]}" trainer.max_steps=$((steps * 5 / 2)) \
    trainer.val_freq=$(((steps + 1) / 2))
run_study ablation "AEPO and its parts"
