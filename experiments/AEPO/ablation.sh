#!/usr/bin/env bash
# AEPO whole, without each of its parts, and plain GRPO: the same seeds, so that run by run differences count.
#
#   experiments/AEPO/ablation.sh [--tiny] [--seeds "1 2 3"] [key=value ...]
set -euo pipefail
source "$(dirname "$0")/study.sh"
read_words "$@"
start
# A weight of 0 that stays 0: the reward is the accuracy alone, and HWE tokens are still counted.
accuracy_only=(algorithm.alpha_entropy_lr=0 algorithm.alpha_entropy_init_easy=0 algorithm.alpha_entropy_init_medium=0 algorithm.alpha_entropy_init_hard=0)
variant ablation "full AEPO"
variant ablation "no entropy reward" "${accuracy_only[@]}"
variant ablation "no dynamic KL" worker.actor.dynamic_kl_loss=false
variant ablation "no filtering" algorithm.online_filtering=false
variant ablation "plain GRPO" "${accuracy_only[@]}" worker.actor.dynamic_kl_loss=false algorithm.online_filtering=false data.bootstrap=false
finish ablation "AEPO and its parts"
