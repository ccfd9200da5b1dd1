#!/usr/bin/env bash
# A curriculum from easy to hard sums against constant weights, on a tiny model (RESULTS.md).
#
#   experiments/curriculum/study.sh [--jobs N] [SEED ...]     default: one run at a time, 1 2 3 4 5
#   experiments/curriculum/study.sh [--jobs N] --pair [SEED ...]    curriculum and constant alone,
#                                                             6 to 10; a table, no figures
#
# Runs that are finished are skipped, interrupted ones go on. The same seeds draw the questions of a
# data set in the same order, so that runs of two variants are pairs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=${ARES_TRAIN:-build/ares-train}
here=experiments/curriculum
home=runs/curriculum
jobs=1
if [[ ${1:-} == --jobs ]]; then jobs=${2:?"--jobs needs a number"} && shift 2; fi
seeds="1 2 3 4 5"
variants=(curriculum constant "weights alone" reversed "hard alone")
if [[ ${1:-} == --pair ]]; then
    variants=(curriculum constant)
    seeds=$(echo {6..10})
    shift
fi
seeds=${*:-$seeds}
[[ -x $program ]] || { echo "study.sh: no $program; build it (scripts/quickstart.sh does)" >&2; exit 2; }

python3 $here/prepare.py $home/data
[[ -d $home/init ]] || "$program" init --arch qwen2 --seed 1 --out $home/init
[[ -e $home/start/DONE ]] ||
    "$program" sft --config $here/start.yaml trainer.run_dir=$home/start trainer.threads=1

words_of() { # variant
    case $1 in
    curriculum) words=() ;;
    constant) words=("curriculum.weights=[0.5, 0.5]" "curriculum.reward_caps=[0.75, 0.75]") ;;
    "weights alone") words=("curriculum.reward_caps=[0.75, 0.75]") ;;
    reversed)
        words=("curriculum.weights=[rising, falling]"
            "curriculum.reward_caps=[rising_cap, falling_cap]")
        ;;
    "hard alone") words=("curriculum.weights=[0, 1]" "curriculum.reward_caps=[0.75, 0.75]") ;;
    esac
}

train() { # VARIANT SEED RUN_DIR
    mkdir -p "${3%/*}"
    words_of "$1"
    "$program" --config $here/config.yaml "${words[@]}" worker.rollout.seed="$2" data.seed="$2" \
        trainer.run_dir="$3" trainer.threads=1 'trainer.logger=[file]' >"$3.log" 2>&1 ||
        { echo "study.sh: $3 failed: see $3.log" >&2; return 1; }
}

runs=() started=()
for seed in $seeds; do
    for name in "${variants[@]}"; do
        run=$home/study/${name// /_}/$seed
        runs+=("$name=$run")
        [[ ! -e $run/DONE ]] || continue
        while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done # a failed run ends the study
        train "$name" "$seed" "$run" &
        started+=($!)
    done
done
for id in "${started[@]}"; do wait "$id"; done

python3 $here/summarize.py $home/study $seeds
((${#variants[@]} > 2)) || exit 0
draw() { # DATA_SET TITLE
    "$program" compare --smooth 1 --band error --metric "eval/$1/accuracy" --title "$2" \
        --svg "$here/results/$1.svg" "${runs[@]}" | grep figure:
}
draw hard "right answers to hard sums that training never shows"
draw easy "right answers to easy sums that training never shows"
python3 $here/schedules.py $home/study/curriculum/"${seeds%% *}" $here/results/schedules.svg
