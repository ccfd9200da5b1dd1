#!/usr/bin/env bash
# The quick start on SmolLM2-135M-Instruct: all weights beside adapters of rank 16 and rank 1
# (RESULTS.md).
#
#   experiments/lora/study.sh scan              12 steps at each of many learning rates, one seed
#   experiments/lora/study.sh rates             20 steps at those that are left, the same seed
#   experiments/lora/study.sh METHOD=RATE ...   20 steps at these, seeds 1 to 5; METHOD: full, rank16,
#                                               rank1
#
# --jobs N before that: runs side by side (1). METHODS="rank1" and RATES="3e-4 1e-3" in the
# environment: these alone of scan and rates. Runs that are finished are skipped, interrupted ones
# go on. The same seeds draw the same questions in the same order, so that runs of two methods are
# pairs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=${ARES_TRAIN:-build/ares-train}
here=experiments/lora
home=runs/lora
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
declare -A rank=([full]=0 [rank16]=16 [rank1]=1)
declare -A scan=([full]="1e-5 3e-5 1e-4" [rank16]="1e-4 3e-4 1e-3 3e-3" [rank1]="3e-4 1e-3 3e-3")
declare -A rates=([full]="3e-5 1e-5" [rank16]="5e-4 3e-4 3e-5" [rank1]="5e-4 3e-4")

train() { # RUN words...
    local run=$home/$1
    shift
    [[ ! -e $run/DONE ]] || return 0
    mkdir -p "$run"
    "$program" --config examples/quickstart/config.yaml --config $here/config.yaml \
        trainer.run_dir="$run" "$@" >"$run.log" 2>&1 ||
        { echo "study.sh: $run failed: see $run.log" >&2; return 1; }
    rm -rf "$run/checkpoints" # of all weights it is half a gigabyte, and the tables need none
}
started=()
method() { # KIND METHOD RATE SEED words...
    while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done # a failed run ends the study
    train "$1/$2/$3/$4" worker.actor.model.lora.rank="${rank[$2]}" worker.actor.optim.lr="$3" \
        worker.rollout.seed="$4" data.seed="$4" "${@:5}" &
    started+=($!)
}

grep -qs val/accuracy $home/start.log || train start trainer.val_only=true # it writes no other file
case ${1:-} in
"") refuse "which methods, at which rates? e.g. full=3e-5 rank16=3e-4 rank1=3e-4" ;;
scan | rates)
    words=()
    [[ $1 == rates ]] || words=(trainer.max_steps=12)
    for name in ${METHODS:-full rank16 rank1}; do
        of=$1"[$name]"
        for rate in ${RATES:-${!of}}; do
            method "$1" "$name" "$rate" 101 "${words[@]}"
        done
    done
    ;;
*)
    for chosen; do
        [[ $chosen == *=* && -n ${rank[${chosen%=*}]:-} ]] ||
            refuse "'$chosen': METHOD=RATE, where the methods are ${!rank[*]}"
    done
    for seed in {1..5}; do
        for chosen; do
            method study "${chosen%=*}" "${chosen#*=}" "$seed"
        done
    done
    ;;
esac
for id in "${started[@]}"; do wait "$id"; done
