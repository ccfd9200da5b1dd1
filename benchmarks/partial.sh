#!/usr/bin/env bash
# Tokens trained per second with over-sampling and partial rollouts against plain rounds, in turn,
# where one answer in 20 is ten times as long: a model is taught such lengths first (a few seconds
# of sft on tokens `a`, which end with probability 1/short, or `b`, with 1/(10 short)). JSON lines:
# one per run, then the ratios of the medians. Decode steps are counted beside the time, because
# they are what the method saves: what a step costs beside its tokens decides what that is worth
# (docs/performance.md#over-sampling-and-partial-rollouts).
#
#   benchmarks/partial.sh [prompts=16] [n=4] [over=20] [short=24] [steps=20] [rounds=3] [threads=0]
#       [model=DIR]      DIR: sampled as it is; without it the random tiny model, taught
#       [extra="..."]    further options of both sides
#
# ARES_BUILD names another build folder. The first fifth of a run's steps is left out, except in
# tokens_per_cpu_second, which is of the whole process and hardly depends on what else the machine
# does; with threads=1 it is what an idle core would do.
set -euo pipefail
cd "$(dirname "$0")/.."
prompts=16 n=4 over=20 short=24 steps=20 rounds=3 threads=0 model='' extra=''
for word; do
    case $word in
    prompts=* | n=* | over=* | short=* | steps=* | rounds=* | threads=* | model=* | extra=*)
        declare "${word%%=*}=${word#*=}" ;;
    *) echo "partial.sh: '$word': no such option" >&2; exit 2 ;;
    esac
done
program=$PWD/${ARES_BUILD:-build}/ares-train
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
longest=$((short * 40))

# rows FILE KEY: prompts, with answers of the lengths that are taught
rows() {
    awk -v short="$short" -v longest="$longest" -v key="$2" 'BEGIN {
        srand(1)
        for (i = 0; i < 3000; i++) {
            tail = rand() < 0.05; mean = tail ? 10 * short : short; text = ""
            for (k = 1; ; k++) {
                text = text (tail ? "b" : "a")
                if (rand() < 1 / mean || k == longest) break
            }
            printf "{\"prompt\":\"%d+%d=?\",\"%s\":\"%s\"}\n", i % 97, i % 89, key, text
        }
    }' >"$1"
}

if [[ -z $model ]]; then
    rows "$work/sft.jsonl" response
    "$program" init --arch qwen2 --seed 1 --out "$work/tiny" >/dev/null
    "$program" sft "data.train_files=$work/sft.jsonl" "worker.actor.model.model_path=$work/tiny" \
        "trainer.run_dir=$work/taught" trainer.max_steps=120 sft.batch_size=32 \
        "sft.max_length=$((longest + 64))" worker.actor.optim.lr=2e-3 trainer.save_minutes=null \
        'trainer.logger=[file]' >/dev/null
    model=$work/taught
fi
rows "$work/rows.jsonl" answer
common=("data.train_files=$work/rows.jsonl" data.max_prompt_length=64
    "data.max_response_length=$longest" "data.rollout_batch_size=$prompts"
    "worker.actor.global_batch_size=$prompts" "worker.rollout.n=$n"
    "worker.actor.model.model_path=$model" worker.actor.optim.lr=1e-7
    algorithm.adv_estimator=grpo algorithm.disable_kl=true
    'worker.reward.rewards=[{name: random}]' "trainer.max_steps=$steps"
    trainer.save_minutes=null 'trainer.logger=[file]' worker.rollout.max_num_seqs=1024
    worker.actor.max_token_len_per_device=4096)
((threads)) && common+=("trainer.threads=$threads")
read -r -a more <<<"$extra"

# measure SIDE OPTION...: a line of numbers
measure() {
    local side=$1
    shift
    rm -rf "$work/run"
    local TIMEFORMAT=%U cpu
    cpu=$({ time "$program" "${common[@]}" "trainer.run_dir=$work/run" "$@" \
        ${more+"${more[@]}"} >/dev/null 2>&1; } 2>&1)
    awk -v side="$side" -v answers=$((prompts * n)) -v first=$((steps / 5)) -v cpu="$cpu" '
        function of(name,    before) {
            before = length(name) + 3
            if (!match($0, "\"" name "\":[-+.0-9e]+")) return 0
            return substr($0, RSTART + before, RLENGTH - before) + 0
        }
        of("step") > 0 { all += of("response_length/mean") * answers }
        of("step") > first {
            tokens += of("response_length/mean") * answers; seconds += of("timing_s/step")
            gen += of("timing_s/gen"); passes += of("rollout/forward_passes")
        }
        END {
            printf "{\"side\":\"%s\",\"tokens\":%d,\"seconds\":%.3f,", side, tokens, seconds
            printf "\"gen_seconds\":%.3f,\"tokens_per_second\":%.1f,", gen, tokens / seconds
            printf "\"tokens_per_cpu_second\":%.1f,", all / cpu
            printf "\"decode_steps_per_1000_tokens\":%.2f}\n", 1000 * passes / tokens
        }
    ' "$work/run/metrics.jsonl"
}

for ((i = 0; i < rounds; i++)); do
    measure plain
    measure partial "curriculum.over_sampling_batch_size=$over" curriculum.partial_rollout=true
done | tee "$work/lines"

# median KEY SIDE
median() {
    grep "\"side\":\"$2\"" "$work/lines" | sed "s/.*\"$1\":\([0-9.]*\).*/\1/" | sort -g |
        awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'
}
awk -v a="$(median tokens_per_second partial)" -v b="$(median tokens_per_second plain)" \
    -v e="$(median tokens_per_cpu_second partial)" -v f="$(median tokens_per_cpu_second plain)" \
    -v c="$(median decode_steps_per_1000_tokens plain)" \
    -v d="$(median decode_steps_per_1000_tokens partial)" \
    'BEGIN { printf "{\"ratio\":%.3f,\"ratio_by_cpu\":%.3f,\"decode_steps_saved\":%.2f}\n", \
        a / b, e / f, c / d }'
