#!/usr/bin/env bash
# The intervention study: PPO on Sokoban by the weight of the entropy bonus, by the weight of the KL
# penalty, and by the filter on reward variance; the filter on slippery FrozenLake. A second call
# goes on where the first was stopped.
#
#   --scale small   models of 0.13 and 0.48 M parameters, made here and warmed up on solved rooms;
#                   40 steps (FrozenLake: 25), three seeds, on the CPU (the default; README.md)
#   --scale full    the published sizes on cards: the four scripts of scripts/runs
#   --only NAME     entropy, kl, top_p or frozen_lake alone; unmoved (small): the models as they
#                   begin, in the same rooms, that is a learning rate of 0
#   --jobs N        small: runs side by side (1)
#   word ...        passed on: small: to `ares-train sweep`, such as --dry-run, --seeds 1,2,3 or
#                   key=value; full: to the scripts
set -euo pipefail
cd "$(dirname "$0")/../.."
program=${ARES_TRAIN:-build/ares-train}
here=experiments/intervention_sweep
out=runs/intervention_sweep
scale=small only= jobs=1 words=()
while (($#)); do
    case $1 in
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit 0 ;;
    --scale | --only | --jobs)
        (($# > 1)) || { echo "$0: $1 needs a value (see --help)" >&2 && exit 2; }
        declare "${1#--}=$2"
        shift
        ;;
    *) words+=("$1") ;;
    esac
    shift
done

full() {
    local name rand
    for name in ${only:-entropy kl top_p frozen_lake}; do
        if [[ $name == frozen_lake ]]; then
            for rand in high low; do
                scripts/runs/run_frozen_lake_rand_top_p_sweep.sh --rand $rand \
                    --top-p 1.0,0.98,0.95,0.9,0.8,0.6,0.4 "${words[@]}"
            done
        else
            scripts/runs/run_"$name"_sweep.sh "${words[@]}"
        fi
    done
}

# The model with which all runs on an environment begin. It learns from games in which a share of
# the actions is random.
start() { # name tag share width heads, words of sft; options: of the environment
    local name=$out/$1_start width=(--hidden "$4" --heads "$5" --kv-heads "$5")
    [[ ! -e $name/DONE ]] || return 0
    python3 $here/prepare.py --program "$program" --env "$2" --noise "$3" --out "$name"_data \
        "${options[@]}"
    rm -rf "$name"_random
    "$program" init --arch qwen2 --layers 2 "${width[@]}" --vocab 384 \
        --tokenizer "$name"_data/tokenizer --out "$name"_random
    "$program" sft --config $here/sft.yaml data.train_files="$name"_data/sft.jsonl \
        worker.actor.model.model_path="$name"_random trainer.run_dir="$name" "${@:6}"
}

sokoban_start() {
    options=(dim_x=5 dim_y=5)
    start sokoban CoordSokoban 0.4 64 2
}

frozen_lake_start() { # a wider model: the narrow one does not find out where the goal is
    options=(is_slippery=false)
    start frozen_lake CoordFrozenLake 0.6 128 4 worker.actor.optim.lr=1e-3 trainer.max_steps=150
}

# The sizes that the files of the sweeps set too.
sizes=(trainer.device=cpu 'trainer.logger=[console]' env.train.group_size=8 env.val.groups=128
    worker.actor.global_batch_size=16 worker.critic.global_batch_size=16)

sweep() { # file, start, word ...
    "$program" sweep --sweep configs/sweeps/"$1".yaml --config $here/config.yaml \
        --let model_path=$out/"$2"_start --let steps=40 --seeds 1,2,3 --jobs "$jobs" --cooldown 0 \
        "${sizes[@]}" "${@:3}" "${words[@]}"
}

small() {
    local name rand
    for name in ${only:-unmoved entropy kl top_p frozen_lake}; do
        case $name in
        unmoved) unmoved ;;
        frozen_lake)
            frozen_lake_start
            for rand in high low; do
                sweep frozen_lake_rand_top_p frozen_lake --let steps=25 --over rand=$rand \
                    --over top_p=1.0,0.6,0.4
            done
            ;;
        *) sokoban_start && sweep sokoban_"$name" sokoban ;;
        esac
    done
}

# What every sweep begins from, in the rooms that its steps meet.
unmoved() {
    local rand still=(worker.actor.optim.lr=0 algorithm.adv_estimator=grpo)
    sokoban_start
    frozen_lake_start
    sweep sokoban_entropy sokoban --name unmoved_sokoban --over entropy=0 "${still[@]}"
    for rand in high low; do
        sweep frozen_lake_rand_top_p frozen_lake --name unmoved_frozen_lake_$rand \
            --let steps=25 --over rand=$rand --over top_p=1.0 "${still[@]}"
    done
}

[[ -x $(command -v "$program") ]] ||
    { echo "$0: no $program; build it first, or set ARES_TRAIN" >&2 && exit 2; }
case $scale,$only in
small, | small,unmoved | small,entropy | small,kl | small,top_p | small,frozen_lake) small ;;
full, | full,entropy | full,kl | full,top_p | full,frozen_lake) full ;;
*) echo "$0: --scale $scale --only '$only': no such part (see --help)" >&2 && exit 2 ;;
esac
