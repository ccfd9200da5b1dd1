#!/usr/bin/env bash
# What a trained token costs with VAPOR and stored pairs, against GRPO of as many tokens: VAPOR
# trains n answers per prompt and the two answers of its pair, GRPO n + 2 answers of the same
# length, with a KL to the reference as VAPOR has one. JSON lines: one per run, then the ratios of
# the medians, of whole steps and of all but generation (docs/performance.md#vapor).
#
#   benchmarks/vapor.sh [prompts=8] [n=4] [length=32] [steps=8] [rounds=3] [threads=1]
#       [epoch=0]        steps of an epoch; 0: no row comes twice, so that the reference sees every
#                        stored answer in its step
#       [model=DIR]      DIR: trained as it is; without it a model of 6.4 million parameters that
#                        was taught some letters
#       [extra="..."]    further options of both sides
#
# ARES_BUILD names another build folder. Numbers are CPU seconds of the process, less those of a
# run of one step, so that starting counts in neither side; they hardly depend on what else the
# machine does. With several threads, waiting counts as work.
set -euo pipefail
cd "$(dirname "$0")/.."
prompts=8 n=4 length=32 steps=8 epoch=0 rounds=3 threads=1 model='' extra=''
for word; do
    case $word in
    prompts=* | n=* | length=* | steps=* | epoch=* | rounds=* | threads=* | model=* | extra=*)
        declare "${word%%=*}=${word#*=}" ;;
    *) echo "vapor.sh: '$word': no such option" >&2; exit 2 ;;
    esac
done
((epoch)) || epoch=$((steps + 1))
program=$PWD/${ARES_BUILD:-build}/ares-train
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [[ -z $model ]]; then
    # taught a few letters first: a random model writes bytes of which none is a tag
    awk -v length_="$length" 'BEGIN {
        srand(1)
        for (i = 0; i < 400; i++) {
            text = ""
            for (k = 0; k < length_; k++) text = text substr("aebcd", 1 + int(5 * rand()), 1)
            printf "{\"prompt\":\"%d+%d=?\",\"response\":\"%s\"}\n", i % 97, i % 89, text
        }
    }' >"$work/sft.jsonl"
    "$program" init --arch qwen2 --hidden 256 --layers 8 --heads 4 --kv-heads 2 --seed 1 \
        --out "$work/random" >/dev/null
    "$program" sft "data.train_files=$work/sft.jsonl" "worker.actor.model.model_path=$work/random" \
        data.apply_chat_template=false "trainer.run_dir=$work/taught" trainer.max_steps=40 \
        sft.batch_size=8 worker.actor.optim.lr=2e-3 trainer.save_minutes=null \
        'trainer.logger=[file]' >/dev/null 2>&1
    model=$work/taught/checkpoints/step_000040/model
fi

# An answer of about `length` tokens: tags and the end of the text count too.
answer() { # letter, how many
    printf '<S>'
    printf " $1%.0s" $(seq "$2")
    printf '</S>'
}
tokens_of() { echo "\"$1\"" | "$program" tokenize --model "$model" | tr ',' '\n' | wc -l; }
one=$(tokens_of "$(answer x 1)")
each=$(($(tokens_of "$(answer x 2)") - one))
words=$((1 + (length - 1 - one) / each))
chosen=$(answer x $words)
rejected=$(answer y $words)
pair=$(($(tokens_of "$chosen") + $(tokens_of "$rejected") + 2))
for ((i = 0; i < prompts * epoch; i++)); do
    printf '{"prompt":"%d+%d=?","answer":"1","chosen":"%s","rejected":"%s"}\n' \
        $((i % 97)) $((i % 89)) "$chosen" "$rejected"
done >"$work/rows.jsonl"

common=("data.train_files=$work/rows.jsonl" data.max_prompt_length=64 data.apply_chat_template=false
    "data.max_response_length=$length" "data.rollout_batch_size=$prompts"
    "worker.actor.global_batch_size=$prompts" worker.rollout.ignore_eos=true
    "worker.actor.model.model_path=$model" worker.actor.optim.lr=1e-6
    'worker.reward.rewards=[{name: random}]' worker.reward.accuracy=random
    trainer.save_minutes=null trainer.save_freq=-1 'trainer.logger=[file]'
    "trainer.threads=$threads")
# nearly every answer has these letters, and so a span that is judged
vapor=(algorithm.name=vapor 'vapor.preference_term_split=[<S>, </S>]'
    'vapor.verifiable_term_split=[e, a]' "worker.rollout.n=$n")
grpo=(algorithm.adv_estimator=grpo algorithm.disable_kl=false algorithm.use_kl_loss=true
    algorithm.kl_coef=0.04 "worker.rollout.n=$((n + 2))")
read -r -a more <<<"$extra"

cpu_of() { # STEPS OPTION...: CPU seconds of a run
    local of=$1 TIMEFORMAT=%U
    shift
    rm -rf "$work/run"
    { time "$program" "${common[@]}" "trainer.run_dir=$work/run" "trainer.max_steps=$of" "$@" \
        ${more+"${more[@]}"} >"$work/said" 2>&1 || { cat "$work/said" >&2; exit 1; }; } 2>&1
}

# measure SIDE ANSWERS STORED OPTION...: a line of numbers; tokens of steps 2 and later
measure() {
    local side=$1 answers=$2 stored=$3 start all
    shift 3
    start=$(cpu_of 1 "$@")
    all=$(cpu_of $((steps + 1)) "$@")
    awk -v side="$side" -v answers="$answers" -v stored="$stored" -v cpu="$all" -v start="$start" '
        function of(name,    before) {
            before = length(name) + 3
            if (!match($0, "\"" name "\":[-+.0-9e]+")) return 0
            return substr($0, RSTART + before, RLENGTH - before) + 0
        }
        of("step") > 1 {
            tokens += of("response_length/mean") * answers + stored; n++
            gen += of("timing_s/gen"); step += of("timing_s/step")
            if (side == "vapor" && of("vapor/pref_grad_coef_absmean") == 0) {
                print "vapor.sh: a step learnt nothing from its pairs" >"/dev/stderr"; exit 1
            }
        }
        END {
            printf "{\"side\":\"%s\",\"steps\":%d,\"tokens\":%d,", side, n, tokens
            printf "\"cpu_seconds\":%.3f,\"gen_share\":%.3f,", cpu - start, gen / step
            printf "\"us_per_token\":%.2f,", 1e6 * (cpu - start) / tokens
            printf "\"us_per_token_without_gen\":%.2f}\n", \
                1e6 * (cpu - start) * (1 - gen / step) / tokens
        }
    ' "$work/run/metrics.jsonl"
}

for ((i = 0; i < rounds; i++)); do
    measure vapor $((prompts * n)) $((prompts * pair)) "${vapor[@]}"
    measure grpo $((prompts * (n + 2))) 0 "${grpo[@]}"
done | tee "$work/lines"

median() { # KEY SIDE
    grep "\"side\":\"$2\"" "$work/lines" | sed "s/.*\"$1\":\([0-9.]*\).*/\1/" | sort -g |
        awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'
}
awk -v a="$(median us_per_token vapor)" -v b="$(median us_per_token grpo)" \
    -v c="$(median us_per_token_without_gen vapor)" -v d="$(median us_per_token_without_gen grpo)" \
    'BEGIN { printf "{\"ratio\":%.3f,\"ratio_without_gen\":%.3f}\n", a / b, c / d }'
