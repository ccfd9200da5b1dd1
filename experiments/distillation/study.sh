#!/usr/bin/env bash
# A small student of a small teacher: the divergences, the advantage, and supervised training on as
# many answers of the teacher; seeds 1 to 5, each arm at the learning rate that was best with seeds 6
# to 8 (RESULTS.md).
#
#   experiments/distillation/study.sh
#
# --jobs N: runs side by side (1). Runs that are finished are skipped, interrupted ones go on. The
# same seeds draw the same questions in the same order, so that runs of two arms are pairs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=${ARES_TRAIN:-build/ares-train}
home=runs/distillation_study
here=experiments/distillation
jobs=1
case ${1:-} in
-h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' $here/study.sh && exit ;;
esac
if [[ ${1:-} == --jobs ]]; then jobs=${2:?"--jobs needs a number"} && shift 2; fi
if [[ ! -x $program ]]; then
    echo "study.sh: no $program; build it (scripts/quickstart.sh does)" >&2
    exit 2
fi
mkdir -p $home
loss=distillation.distillation_loss
declare -A arms=(
    [jsd_0]="$loss.beta=0" [jsd_0.5]="$loss.beta=0.5" [jsd_1]="$loss.beta=1"
    [advantage]="$loss.loss_mode=k1 $loss.use_policy_gradient=true" [sft]="" [none]=""
)

# A student after its run: how far it is from the teacher on its own answers to the validation's
# questions, and on the teacher's.
judge() { # RUN
    local own=(data.train_files=examples/data/sums/val.jsonl data.rollout_batch_size=200
        worker.actor.global_batch_size=200 worker.actor.model.model_path="$1"
        worker.actor.optim.lr=0 trainer.max_steps=1 trainer.save_freq=-1 data.shuffle=false)
    "$program" --config $here/config.yaml "${own[@]}" trainer.run_dir="$1/own"
    "$program" --config $here/config.yaml "${own[@]}" trainer.run_dir="$1/teachers" \
        distillation.lmbda=0 worker.rollout.n=1 data.train_files=$home/val_answers.jsonl
}

train() { # ARM RATE SEED
    local run=$home/$1/$2/$3
    [[ ! -e $run/teachers/DONE ]] || return 0
    mkdir -p "$run"
    if [[ $1 == sft ]]; then
        "$program" sft data.train_files=$home/answers_"$3".jsonl data.apply_chat_template=false \
            sft.batch_size=16 sft.max_length=80 worker.actor.model.model_path=$home/student \
            worker.actor.optim.weight_decay=0 worker.actor.optim.lr="$2" trainer.max_steps=96 \
            trainer.save_freq=96 trainer.val_freq=-1 trainer.save_minutes=null trainer.threads=1 \
            'trainer.logger=[file]' trainer.run_dir="$run" data.seed="$3"
    else
        # shellcheck disable=SC2086 # an arm is several words
        "$program" --config $here/config.yaml trainer.run_dir="$run" ${arms[$1]} \
            worker.actor.optim.lr="$2" worker.rollout.seed="$3" data.seed="$3"
    fi
    judge "$run"
    rm -rf "$run"/checkpoints "$run"/*/checkpoints # the tables need none
}

together() { # ARM RATE SEED: beside others
    while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done # a failed run ends the study
    train "$@" >"$home/$1_$2_$3.log" 2>&1 ||
        { echo "study.sh: $* failed: see $home/$1_$2_$3.log" >&2; return 1; } &
    started+=($!)
}
finish() {
    for id in "${started[@]}"; do wait "$id"; done
    started=()
}

# The teacher has learnt the form of answers and a little of the sums.
[[ -d $home/student ]] || "$program" init --arch qwen2 --hidden 64 --layers 2 \
    --initializer-range 0.1 --seed 7 --out $home/student >/dev/null
[[ -d $home/start ]] || "$program" init --arch qwen2 --hidden 96 --layers 2 \
    --initializer-range 0.1 --seed 8 --out $home/start >/dev/null
[[ -e $home/teacher/DONE ]] || "$program" sft data.train_files=examples/data/sums/train.jsonl \
    sft.response_key=answer data.apply_chat_template=false sft.batch_size=8 sft.max_length=80 \
    worker.actor.model.model_path=$home/start worker.actor.optim.lr=1e-2 trainer.max_steps=200 \
    trainer.threads=1 'trainer.logger=[file]' trainer.run_dir=$home/teacher >/dev/null
# its answers to 384 questions, four each: as many as a run of 48 steps samples; those that are cut
# are left out
answers() { # QUESTIONS COUNT SEED FILE
    [[ ! -e $4 ]] || return 0
    head -n "$2" "$1" >$home/questions.jsonl
    "$program" generate --model $home/teacher --raw --input $home/questions.jsonl --n 4 --seed "$3" \
        --max-new-tokens 8 --threads 1 >$home/samples.jsonl
    python3 $here/tables.py answers $home/questions.jsonl $home/samples.jsonl >"$4"
}
for seed in {1..8}; do
    answers examples/data/sums/train.jsonl 384 "$seed" $home/answers_"$seed".jsonl
done
answers examples/data/sums/val.jsonl 200 100 $home/val_answers.jsonl

started=()
for arm in jsd_0 jsd_0.5 jsd_1 advantage sft; do
    for rate in 1e-3 3e-3 1e-2; do
        for seed in 6 7 8; do together $arm $rate $seed; done
    done
done
finish
best=$(python3 $here/tables.py best)
while read -r arm rate; do
    for seed in {1..5}; do together "$arm" "$rate" "$seed"; done
done <<<"$best"
together none 0 1
finish
