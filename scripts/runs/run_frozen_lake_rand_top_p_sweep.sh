#!/usr/bin/env bash
# Figure 3: slippery FrozenLake with PPO, by the share of reward variance that a filter keeps.
#
#   --rand high|low              required; a move succeeds with probability 0.8 or 0.98
#   --top-p LIST                 required; shares, such as 0.4,0.9,1.0
#   --cooldown SECONDS           between two runs on the same cards (30)
set -euo pipefail
source "$(dirname "$0")/sweep.sh"
rand='' top_p=''
own_flag() { # flag value
    case $1 in
    --rand)
        [[ $2 == high || $2 == low ]] || refuse "--rand = '$2': must be high or low"
        rand=$2
        words+=(--over "rand=$2")
        ;;
    --top-p) top_p=$2 && words+=(--over "top_p=$2") ;;
    --cooldown) words+=(--cooldown "$2") ;;
    *) return 1 ;;
    esac
}
required() { # called once every flag is read
    [[ -n $rand ]] || refuse "--rand is required (high or low)"
    [[ -n $top_p ]] || refuse "--top-p is required, such as 0.9,1.0"
}
run_sweep frozen_lake_rand_top_p.yaml "$@"
