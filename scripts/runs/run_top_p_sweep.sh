#!/usr/bin/env bash
# Figure 3: Sokoban with PPO, by the share of reward variance that a filter keeps.
#
#   --rollout_filter_value LIST  shares, or nofilter (1.0,0.98,0.95,0.9,0.8,0.6,0.4,nofilter)
set -euo pipefail
source "$(dirname "$0")/sweep.sh"
own_flag() { # flag value
    [[ $1 == --rollout_filter_value ]] && words+=(--over "top_p=$2")
}
run_sweep sokoban_top_p.yaml "$@"
