#!/usr/bin/env bash
# A curriculum where hard questions are out of reach at first, against constant weights, at equal
# tokens (../RESULTS.md).
#
#   experiments/curriculum/reach/study.sh rates [SEED ...]   three learning rates of every variant
#                                                            (seeds 101 and 102)
#   experiments/curriculum/reach/study.sh VARIANT=RATE ...   these, hard questions alone and easy
#                                                            ones alone, seeds 1 to 10
#
# Runs that are finished are skipped, interrupted ones go on. The same seeds draw the questions of a
# data set in the same order, so that runs of two variants are pairs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
program=${ARES_TRAIN:-build/ares-train}
here=experiments/curriculum/reach
home=runs/curriculum/reach
case ${1:-} in
-h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' $here/study.sh && exit ;;
esac
refuse() { # message
    echo "study.sh: $1" >&2
    exit 2
}
[[ -x $program ]] || refuse "no $program; build it (scripts/quickstart.sh does)"

python3 $here/prepare.py $home/data
[[ -d $home/init ]] || "$program" init --arch qwen2 --layers 2 --hidden 64 --heads 2 --kv-heads 2 \
    --initializer-range 0.1 --seed 1 --out $home/init
[[ -e $home/start/DONE ]] ||
    "$program" sft --config $here/start.yaml trainer.run_dir=$home/start trainer.threads=1

# variant: share of hard questions (of a step), and steps for 70 thousand tokens and more
declare -A hard=([rising_15]="0.1 + 0.8 * min(step / 15, 1)"
    [rising_40]="0.1 + 0.8 * min(step / 40, 1)"
    [rising_mild]="0.25 + 0.5 * min(step / 30, 1)"
    [constant_25]=0.25 [constant_50]=0.5 [constant_75]=0.75 [hard_alone]=1 [easy_alone]=0)
declare -A steps=([rising_15]=50 [rising_40]=60 [rising_mild]=65 [constant_25]=90 [constant_50]=65
    [constant_75]=50 [hard_alone]=40 [easy_alone]=170)

train() { # RUN VARIANT RATE SEED
    local run=$home/$1
    [[ ! -e $run/DONE ]] || return 0
    mkdir -p "$run"
    "$program" --config $here/config.yaml "curriculum.schedules.hard=${hard[$2]}" \
        "curriculum.schedules.easy=1 - (${hard[$2]})" trainer.max_steps="${steps[$2]}" \
        worker.actor.optim.lr="$3" worker.rollout.seed="$4" data.seed="$4" trainer.run_dir="$run" \
        trainer.threads=1 'trainer.logger=[file]' >"$run.log" 2>&1 ||
        { echo "study.sh: $run failed: see $run.log" >&2; return 1; }
}

if [[ ${1:-} == rates ]]; then
    shift
    for seed in ${*:-101 102}; do
        for variant in rising_15 rising_40 rising_mild constant_25 constant_50 constant_75; do
            for rate in 5e-4 1e-3 2.5e-4; do
                train rates/$variant/$rate/"$seed" $variant $rate "$seed"
            done
        done
    done
    exit
fi
(($#)) || refuse "which variants, at which rates? e.g. rising_15=5e-4 constant_50=5e-4"
for chosen; do
    [[ $chosen == *=* && -n ${hard[${chosen%=*}]:-} ]] ||
        refuse "'$chosen': VARIANT=RATE, where the variants are ${!hard[*]}"
done
for seed in {1..10}; do
    for chosen in "$@" hard_alone=5e-4 easy_alone=5e-4; do
        variant=${chosen%=*} rate=${chosen#*=}
        train study/"$variant"/"$rate"/"$seed" "$variant" "$rate" "$seed"
    done
done
