#!/usr/bin/env bash
# From a fresh clone to a trained model: installs what is missing, builds, fetches a small real
# model, trains it to work sums out, at last by reinforcement learning (AEPO), shows the same
# questions before and after. Ten minutes on two cores; a second call goes on where the first was
# stopped, or shows its table again.
#
#   scripts/quickstart.sh           SmolLM2-135M-Instruct (93 MB to fetch)
#   scripts/quickstart.sh --tiny    a random model of 0.85 M parameters instead: nothing to fetch
#   --again                         trains anew, into the same run directory
#   key=value ...                   overrides of the reinforcement learning: trainer.max_steps=4
set -euo pipefail
# Where the sources are; runs/ and models/ lie in another folder where this is called through a link
# to scripts/ there.
home=$(cd -P "$(dirname "$0")/.." && pwd)
cd "$(dirname "$0")/.."

tiny=0
again=0
overrides=()
for word; do
    case $word in
    --tiny) tiny=1 ;;
    --again) again=1 ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '/^set /d'; exit 0 ;;
    [!-]*=*) overrides+=("$word") ;;
    *) echo "quickstart: '$word': no such option (see --help)" >&2; exit 2 ;;
    esac
done
program=build/ares-train
log=build/quickstart.log
say() { echo "quickstart: $*"; }
quietly() { # shows a step's output only when it failed
    "$@" >"$log" 2>&1 || { cat "$log"; echo "quickstart: failed: $*" >&2; exit 1; }
}

"$home/scripts/setup.sh"
mkdir -p build
say "building (a minute or two the first time)"
quietly cmake --preset release -S "$home" ${ARES_CMAKE_ARGS:-}
quietly cmake --build "$home/build" -j "$(nproc)" --target ares-train

# run DIRECTORY words...: trains, goes on, or shows the table of a run that is finished.
run() {
    local dir=$1
    shift
    if [[ -e $dir/DONE ]] && ((!again)); then
        say "$dir is finished; scripts/quickstart.sh --again trains it anew"
        cat "$dir/summary.txt"
        return
    fi
    ((!again)) || rm -rf "$dir"
    "$program" "$@"
}

if ((tiny)); then
    rl=runs/tiny/rl
    [[ -d models/tiny ]] || "$program" init --arch qwen2 --out models/tiny --seed 1
    say "supervised warm start on 3,000 worked sums"
    run runs/tiny/sft sft --config examples/sft/config.yaml --config examples/tiny/sft.yaml
    say "reinforcement learning"
    run "$rl" --config examples/tiny/rl.yaml "${overrides[@]}"
    prompt="123+456=?"
    learnt="The warm start taught the form and part of the sums; the reward alone, right or wrong,
made its samples right more often (reward at first and at last, above). It adds three-digit numbers
and can do nothing else."
    raw="--raw "
else
    rl=runs/quickstart/aepo
    scripts/fetch_smollm2.sh
    say "supervised start on worked sums (2.5 minutes)"
    say "Ctrl-C saves and stops, the same command goes on"
    run runs/AEPO/start sft --config experiments/AEPO/sft.yaml
    say "reinforcement learning: AEPO, on questions the start has not seen"
    run "$rl" --config experiments/AEPO/config.yaml data.bootstrap=false trainer.run_dir="$rl" \
        trainer.max_steps=8 trainer.save_freq=4 "${overrides[@]}"
    prompt="Work out 5 + 5 + 6 + 4 + 2 step by step."
    raw=""
    learnt="The start taught how to work a sum out and part of the sums; the reward, right or wrong,
made sampled answers right more often at every level. It adds five numbers and can do little else:
long sums of two-digit numbers mostly go wrong."
fi

cat <<END

What was learnt: $learnt

Talk to it:      $program generate --model $rl $raw--prompt "$prompt" --temperature 0
Every answer:    $rl/rollouts/, $rl/validation/
The run, a page: $rl/report.html
Curves:          tensorboard --logdir $rl
END
