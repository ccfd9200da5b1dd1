#!/usr/bin/env bash
# SmolLM2-135M-Instruct on the sums of examples/quickstart: taught by itself with the answers, GRPO,
# and supervised training on the answers; as many prompts and steps in each. Not run yet: README.md
# says what a step takes.
#
#   experiments/distillation/smollm2.sh [steps=30] [seeds="1 2 3"] [threads=1] [home=DIR]
#
# Runs that are finished are skipped, interrupted ones go on. At the end a line per run: greedy
# accuracy before and after (of supervised training after), seconds of a step.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=${ARES_TRAIN:-build/ares-train}
steps=30 seeds="1 2 3" threads=1 home=runs/distillation_smollm2
for word; do
    case $word in
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' experiments/distillation/smollm2.sh && exit ;;
    steps=* | seeds=* | threads=* | home=*) declare "${word%%=*}=${word#*=}" ;;
    *) echo "smollm2.sh: '$word': no such option (see --help)" >&2; exit 2 ;;
    esac
done
for need in "$program" models/SmolLM2-135M-Instruct/config.json; do
    [[ -e $need ]] || { echo "smollm2.sh: no $need; scripts/quickstart.sh makes it" >&2; exit 2; }
done
quick=(--config examples/quickstart/config.yaml)
common=(trainer.max_steps="$steps" trainer.save_minutes=null trainer.threads="$threads"
    'trainer.logger=[file]')

run() { # ARM SEED COMMAND OPTION...
    local at=$home/$1/$2 seed=$2 arm=$1
    shift 2
    [[ ! -e $at/DONE ]] || return 0
    mkdir -p "$home/$arm"
    "$program" "$@" "${common[@]}" trainer.run_dir="$at" data.seed="$seed" >"$at.log" 2>&1 ||
        { echo "smollm2.sh: $at failed: see $at.log" >&2; return 1; }
}
for seed in $seeds; do
    run itself "$seed" train "${quick[@]}" --config experiments/distillation/smollm2.yaml \
        trainer.save_freq=-1 worker.rollout.seed="$seed"
    run grpo "$seed" train "${quick[@]}" trainer.save_freq=-1 worker.rollout.seed="$seed"
    run sft "$seed" sft data.train_files=examples/data/arithmetic/train.jsonl \
        worker.actor.model.model_path=models/SmolLM2-135M-Instruct sft.response_key=answer \
        sft.batch_size=10 sft.max_length=80 worker.actor.optim.lr=2e-5 \
        worker.actor.optim.weight_decay=0 trainer.save_freq="$steps"
    if [[ ! -e $home/sft/$seed.eval ]]; then # supervised runs judge nothing
        "$program" eval "${quick[@]}" worker.actor.model.model_path="$home/sft/$seed" \
            trainer.threads="$threads" >"$home/sft/$seed.eval.log" 2>&1
        mv "$home/sft/$seed.eval.log" "$home/sft/$seed.eval"
    fi
done
python3 - "$home" <<'END'
import json, pathlib, re, statistics, sys
for run in sorted(pathlib.Path(sys.argv[1]).glob("*/*/DONE")):
    rows = [json.loads(x) for x in open(run.parent / "metrics.jsonl")]
    seen = [r["val/accuracy"] for r in rows if "val/accuracy" in r]
    later = run.parent.with_suffix(".eval")
    if later.exists():
        seen += [float(re.search(r"^val/accuracy +(\S+)", later.read_text(), re.M)[1])]
    steps = [r["timing_s/step"] for r in rows if "timing_s/step" in r]
    print(*run.parts[-3:-1], "greedy accuracy", " -> ".join(f"{x:.3f}" for x in seen),
          f"{statistics.median(steps[1:] or steps):.2f} s/step")
END
