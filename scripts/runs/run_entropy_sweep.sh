#!/usr/bin/env bash
# Figure 3: Sokoban with PPO, by the weight of the entropy bonus.
#
#   --entropy-values LIST               weights (0,0.001,0.003,0.01,0.03,0.1)
#   --rollout_filter_include_zero BOOL  keep groups whose scores do not vary (True)
set -euo pipefail
source "$(dirname "$0")/sweep.sh"
own_flag() { # flag value
    case $1 in
    --entropy-values) words+=(--over "entropy=$2") ;;
    --rollout_filter_include_zero)
        value=$(truth "$1" "$2") || exit 2
        words+=(--over "include_zero=$value")
        ;;
    *) return 1 ;;
    esac
}
run_sweep sokoban_entropy.yaml "$@"
