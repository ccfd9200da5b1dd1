#!/usr/bin/env bash
# Two steps of every algorithm, and of AEPO over pictures, on a card, beside the same two steps on
# the CPU.
#
#   tests/gpu/runs.sh [BUILD_DIR] [NAME ...]        (default: build, all of them)
#
# In fp32 a card's run must have the CPU's metrics within rounding (near.py). In bf16 the card's
# activations are rounded and other tokens may be drawn, so there the run must only come to its end.
# The words of a card's run are in CARD, so that the script can be tried where there is none:
#
#   CARD=trainer.kernels=aten tests/gpu/runs.sh
#
# On the emulator (docs/testing.md), ARES_EMULATE_ROUNDING=foreign adds products in another order and
# gives exp and log an error in the last bit: the metrics must stay within the same tolerance.
#
# A run takes at most SECONDS_PER_RUN seconds (300). JOBS names are tried side by side (1), with CORES
# threads each (all). WITHOUT is a name that is left out. LIST=1 only lists the names. Last line:
# `runs: N passed, N failed`.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=${1:-build}
(($#)) && shift
card=${CARD:-trainer.device=cuda}
fp32=worker.actor.fsdp.torch_dtype=fp32 # a card's own choice is bf16; what else a run has follows
cores=(${CORES:+"trainer.threads=$CORES"})
limit=${SECONDS_PER_RUN:-300} side_by_side=${JOBS:-1}
program=$build/ares-train
work=$(mktemp -d)
trap 'wait; rm -rf "$work"' EXIT
trap 'exit 143' INT TERM

if [[ -z ${LIST:-} ]]; then
    "$program" init --arch qwen2 --layers 2 --seed 1 --out "$work/model" >/dev/null || exit 2
    "$program" init --arch qwen2_5_vl --vision-patch 6 --initializer-range 0.09 --seed 1 \
        --out "$work/vision_model" >/dev/null || exit 2
fi
names=("$@") tried=0
wanted() { # name
    [[ -z ${LIST:-} ]] || return
    [[ $1 != "${WITHOUT:-}" && (-z ${names[*]} || " ${names[*]} " == *" $1 "*) ]]
}
# VAPOR judges what stands between tags: a model that has learnt to write them, often with a 1
awk 'BEGIN { for (i = 0; i < 64; i++) {
    printf "{\"prompt\":\"%d+%d=?\",\"response\":\"<N>%d</N><S>x</S>\"", i, i + 1, i % 2
    print ",\"answer\":\"1\",\"chosen\":\"<S>x</S>\",\"rejected\":\"<S>y</S>\"}" } }' \
    >"$work/pairs.jsonl"
! wanted vapor || timeout "$limit" "$program" sft "data.train_files=$work/pairs.jsonl" \
    data.apply_chat_template=false "worker.actor.model.model_path=$work/model" \
    worker.actor.optim.lr=3e-3 sft.batch_size=8 trainer.max_steps=60 \
    "trainer.run_dir=$work/taught" 'trainer.logger=[file]' trainer.save_minutes=null \
    >"$work/taught.out" 2>&1 || tail -n 1 "$work/taught.out"

common=(data.train_files=examples/data/sums/train.jsonl data.max_prompt_length=48
    data.max_response_length=12 data.rollout_batch_size=4 algorithm.adv_estimator=grpo
    algorithm.disable_kl=true "worker.actor.model.model_path=$work/model"
    worker.actor.global_batch_size=4 worker.actor.optim.lr=1e-3 worker.actor.optim.weight_decay=0
    worker.rollout.n=4 'worker.reward.rewards=[{name: random}]' trainer.max_steps=2
    'trainer.logger=[file]' trainer.save_minutes=null)

train() { # run, words...
    local run=$1
    shift
    timeout --foreground -k 10 "$limit" "$program" "$@" "${cores[@]}" "trainer.run_dir=$work/$run" \
        >"$work/$run.out" 2>&1 && return
    echo "   exit $?: $(tail -n 1 "$work/$run.out")"
    return 1
}
near() { # name, tolerance, words...: the card's metrics are the CPU's
    local name=$1 tolerance=$2
    shift 2
    train "$name-cpu" "$@" && train "$name-card" "$@" "$card" "$fp32" &&
        python3 tests/gpu/near.py "$work/$name-cpu" "$work/$name-card" "$tolerance"
}
whole() { # name, words...: the card's run comes to its end
    local name=$1
    shift
    train "$name" "$@" "$card" || return
    grep -o '"exact/rollout_train_max_abs": *[^,]*' "$work/$name/metrics.jsonl" | sed 's/^/   /'
}

try() { # near or whole, name, ...: where the name is wanted, beside others
    local name=$2
    [[ -z ${LIST:-} ]] || echo "$name"
    wanted "$name" || return
    while (($(jobs -rp | wc -l) >= side_by_side)); do wait -n; done
    tried=$((tried + 1))
    {
        if "$@" >"$work/$name.lines"; then
            touch "$work/$name.ok"
            echo "ok   $name"
        else echo "FAIL $name"; fi | cat - "$work/$name.lines" # at once
    } &
}
beside() { try near "$@"; }
ends() { try whole "$@"; }
rl() { beside "$1" 1e-3 "${common[@]}" "${@:2}"; }
kl=(algorithm.disable_kl=false algorithm.use_kl_loss=true)
ppo=(algorithm.adv_estimator=gae worker.critic.optim.lr=1e-3 worker.critic.optim.weight_decay=0)
beside sft 1e-3 sft data.train_files=examples/data/sums/sft.jsonl sft.batch_size=8 \
    "worker.actor.model.model_path=$work/model" trainer.max_steps=2 'trainer.logger=[file]'
rl grpo
rl grpo-recompute worker.actor.model.enable_gradient_checkpointing=true
rl grpo-kl "${kl[@]}"
rl grpo-exact-kl "${kl[@]}" algorithm.kl_penalty=full
rl grpo-kl-in-reward algorithm.disable_kl=false algorithm.use_kl_loss=false
rl grpo-entropy worker.actor.entropy_coeff=0.01
rl grpo-top-p worker.rollout.top_p=0.9 worker.rollout.top_k=40
rl grpo-two-passes worker.actor.loss_avg_mode=seq worker.actor.max_token_len_per_device=128
rl ppo "${ppo[@]}" "${kl[@]}"
lora=(worker.actor.model.lora.rank=4)
rl lora "${lora[@]}" "${kl[@]}"
rl lora-head "${lora[@]}" 'worker.actor.model.lora.target_modules=[q_proj,down_proj,lm_head]'
rl lora-ppo "${lora[@]}" "${ppo[@]}" worker.critic.model.lora.rank=4
rl aepo "${kl[@]}" algorithm.aepo=true worker.rollout.window_size=2 \
    'worker.reward.rewards=[{name: random}, {name: aepo}]' worker.reward.accuracy=random
for estimator in grpo_passk rloo reinforce_plus_plus reinforce_plus_plus_baseline remax opo gpg \
    optimal_token_baseline; do
    rl "$estimator" algorithm.adv_estimator=$estimator
done
for loss in dapo gspo gspo_token cispo gmpo sapo clip_cov gpg dppo_tv dppo_kl dro; do
    rl "loss-$loss" worker.actor.loss_type=$loss
done
# |log ratio| has a corner at the ratio 1 of a first pass: old log-probs of the update's own pass put
# every token on it exactly, and none to a side that rounding decides
rl kl_cov worker.actor.loss_type=kl_cov worker.actor.kl_cov_ratio=0.2 worker.actor.ppo_epochs=2 \
    worker.actor.recompute_log_probs=true
rl vapor worker.actor.loss_type=vapor algorithm.adv_estimator=vapor \
    "data.train_files=$work/pairs.jsonl" data.apply_chat_template=false \
    'vapor.preference_term_split=[<S>, </S>]' 'vapor.verifiable_term_split=[<N>, </N>]' \
    'worker.reward.rewards=[{name: exact}]' data.max_response_length=24 \
    "worker.actor.model.model_path=$work/taught"
# prompts must fit, or nothing is answered; the rewards of a random model are equal
agents=(env.train.tags=FrozenLake env.train.groups=2 env.train.group_size=4 env.max_turns=3
    env.enable_think=false env.token_exact=true env.definitions.FrozenLake.instruction=Ice.
    algorithm.adv_estimator=grpo algorithm.disable_kl=true data.max_prompt_length=400
    worker.rollout.max_model_len=1200 data.max_response_length=12
    "worker.actor.model.model_path=$work/model" worker.actor.global_batch_size=2
    worker.actor.optim.lr=1e-3 worker.actor.entropy_coeff=0.01 trainer.max_steps=2
    'trainer.logger=[file]' trainer.save_minutes=null)
beside agents 1e-3 "${agents[@]}"
# pictures: the tower keeps its weights, or is trained with the rest
vision=(--config experiments/AEPO/vision.yaml "worker.actor.model.model_path=$work/vision_model"
    ~data.val_files data.bootstrap=false data.rollout_batch_size=4 worker.actor.global_batch_size=4
    worker.rollout.n=4 'worker.reward.rewards=[{name: random}, {name: aepo}]'
    worker.reward.accuracy=random algorithm.online_filtering=false trainer.max_steps=2
    trainer.val_freq=-1 trainer.save_freq=-1 'trainer.logger=[file]' trainer.save_minutes=null)
beside vision 1e-3 "${vision[@]}"
beside vision-trained 1e-3 "${vision[@]}" worker.actor.model.freeze_vision_tower=false
beside vision-lora 1e-3 "${vision[@]}" worker.actor.model.freeze_vision_tower=false "${lora[@]}"
ends vision-bf16 "${vision[@]}" worker.actor.fsdp.torch_dtype=bf16 worker.ref.fsdp.torch_dtype=bf16
ends grpo-bf16 "${common[@]}" "${kl[@]}" worker.actor.fsdp.torch_dtype=bf16 \
    worker.ref.fsdp.torch_dtype=bf16
ends ppo-bf16 "${common[@]}" "${ppo[@]}" worker.actor.fsdp.torch_dtype=bf16 \
    worker.critic.fsdp.torch_dtype=bf16
ends lora-bf16 "${common[@]}" "${lora[@]}" "${kl[@]}" worker.actor.fsdp.torch_dtype=bf16
ends dapo-adamw-bf16 "${common[@]}" worker.actor.loss_type=dapo \
    worker.actor.fsdp.torch_dtype=bf16 worker.actor.optim.strategy=adamw_bf16
wait
[[ -z ${LIST:-} ]] || exit 0
passed=$(find "$work" -maxdepth 1 -name '*.ok' | wc -l)
((passed == tried)) || echo "with ARES_EMULATE_SEED=${ARES_EMULATE_SEED:-0}" \
    "ARES_EMULATE_ROUNDING=${ARES_EMULATE_ROUNDING:-}, where the card is emulated"
echo "runs: $passed passed, $((tried - passed)) failed"
((passed > 0 && passed == tried))
