#!/usr/bin/env bash
# GRPO and PPO on sums with a small model whose layers are gated delta nets but one in four, after a
# supervised start, beside learning rate 0 (RESULTS.md).
#
#   experiments/hybrid/study.sh scan     each method at several learning rates, one seed
#   experiments/hybrid/study.sh grpo=RATE ppo=RATE     at these rates and at 0, three seeds
#
# --jobs N before that: runs side by side (1). A seed makes the weights, the order of the examples and
# the samples. Runs that are finished are skipped, interrupted ones go on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=${ARES_TRAIN:-build/ares-train}
here=experiments/hybrid
home=runs/hybrid
jobs=1
case ${1:-} in
-h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' $here/study.sh && exit ;;
esac
refuse() { # message
    echo "study.sh: $1" >&2
    exit 2
}
if [[ ${1:-} == --jobs ]]; then jobs=${2:?"--jobs needs a number"} && shift 2; fi
[[ -x $program ]] || refuse "no $program; build it (scripts/quickstart.sh does)"

train() { # RUN words...
    local run=$home/$1
    shift
    [[ ! -e $run/DONE ]] || return 0
    mkdir -p "$run"
    "$program" "$@" trainer.run_dir="$run" trainer.threads=1 >"$run.log" 2>&1 ||
        { echo "study.sh: $run failed: see $run.log" >&2; return 1; }
}
start() { # SEED: the supervised start, short of what it can learn: 350 steps leave nothing to do
    [[ -d $home/models/$1 ]] ||
        "$program" init --arch qwen3_5_text --seed "$1" --out "$home/models/$1" >/dev/null
    train "start/$1" sft --config examples/sft/config.yaml --config examples/tiny/sft.yaml \
        worker.actor.model.model_path="$home/models/$1" data.seed="$1" trainer.max_steps=160
}
learn() { # KIND METHOD RATE SEED
    local words=()
    [[ $2 == grpo ]] || words=(algorithm.adv_estimator=gae "worker.critic.optim.lr=$3")
    train "$1/$2/$3/$4" --config examples/tiny/rl.yaml --config $here/config.yaml \
        worker.actor.model.model_path="$home/start/$4" worker.actor.optim.lr="$3" \
        worker.rollout.seed="$4" data.seed="$4" "${words[@]}"
}
started=()
beside() { # command...
    while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done # a failed run ends the study
    "$@" &
    started+=($!)
}
all() { for id in "${started[@]}"; do wait "$id"; done; started=(); }

mkdir -p $home/models
case ${1:-} in
"") refuse "which methods, at which rates? e.g. grpo=1e-4 ppo=1e-4" ;;
scan)
    start 101
    for rate in 1e-4 3e-4; do
        for method in grpo ppo; do beside learn scan $method $rate 101; done
    done
    ;;
*)
    for chosen; do
        [[ $chosen == grpo=* || $chosen == ppo=* ]] || refuse "'$chosen': grpo=RATE or ppo=RATE"
    done
    for seed in 1 2 3; do beside start $seed; done
    all
    for seed in 1 2 3; do
        for chosen; do
            for rate in "${chosen#*=}" 0; do beside learn study "${chosen%=*}" "$rate" $seed; done
        done
    done
    ;;
esac
all
