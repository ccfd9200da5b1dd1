# Sourced by the studies here: the words they share, and the runs, one after the other.
#
#   --tiny             a random model of 0.85 M parameters (tiny.yaml) instead of SmolLM2: minutes
#                      instead of hours
#   --seeds "1 2 3"    one run of every variant for each; the same seeds draw the same prompts, so
#                      that the runs of two variants are pairs
#   --only NAME        this variant alone; may be given several times
#   --ranks N          processes of a run
#   --check            checks that every variant is a good configuration and different from the
#                      others; trains nothing
#   key=value ...      overrides of every run, such as trainer.max_steps=8; what a variant sets
#                      itself wins over them
#
# Two variants that resolve to the same configuration are an error: their runs would be the same,
# bit for bit. A run that is finished (its DONE file) is skipped, one that was interrupted goes on,
# one that fails is named at the end and does not stop the others. The table and the figure are
# drawn from what is there.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=${ARES_TRAIN:-build/ares-train}
here=${here:-experiments/AEPO} # another experiment sets it, and `start` and `draw`, to its own
home=runs/${here##*/}
model=smollm2
check=0
steps=0      # of a run, as configured; 0: as many as the epochs give
only=()
configs=(--config $here/config.yaml)
seeds="1 2 3"
ranks=()
overrides=()
failed=()
names=() settings=() # the study's variants, and their overrides
runs=()      # words for `ares-train compare`

refuse() { # message
    echo "$(basename "$0"): $1" >&2
    exit 2
}

read_words() {
    while (($#)); do
        case $1 in
        --tiny) model=tiny configs=(--config $here/config.yaml --config $here/tiny.yaml) ;;
        --seeds) seeds=${2:?"--seeds needs numbers"} && shift ;;
        --only) only+=("${2:?"--only needs the name of a variant"}") && shift ;;
        --ranks) ranks=(--ranks "${2:?"--ranks needs a number"}") && shift ;;
        --check) check=1 ;;
        -h | --help)
            sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
            sed -n '/^#   /s/^# \{0,1\}//p' experiments/AEPO/study.sh
            exit 0
            ;;
        [!-]*=*) overrides+=("$1") ;;
        *) refuse "'$1': no such option (see --help)" ;;
        esac
        shift
    done
    [[ -x $program ]] ||
        refuse "no $program; build it (scripts/quickstart.sh does), or set ARES_TRAIN"
    steps=$(resolved | sed -n 's/.*max_steps: \([0-9]*\)$/\1/p')
}

# resolved override ...: the configuration of a run with these.
resolved() { "$program" "${configs[@]}" "${overrides[@]}" "$@" --print-config; }

# Options of a run's place, files and speed: set to their defaults where configurations are
# compared, because no weight depends on them.
unmoving=(project_name experiment_name run_dir threads logger val_freq val_before_train
    val_generations_to_log save_freq save_limit)
unmoving=("${unmoving[@]/#/'~trainer.'}" '~worker.rollout.max_num_seqs'
    '~worker.rollout.max_num_batched_tokens' '~worker.rollout.cache_tokens'
    '~worker.actor.max_token_len_per_device' '~worker.actor.model.enable_gradient_checkpointing')

# Every variant resolves, and no two to the same.
check_variants() {
    local i k words configuration all=()
    ((steps > 0)) || refuse "trainer.max_steps: a study needs a number of steps"
    for i in "${!names[@]}"; do
        eval "words=(${settings[i]})"
        configuration=$(resolved "${words[@]}" "${unmoving[@]}") ||
            refuse "'${names[i]}': no good configuration"
        for k in "${!all[@]}"; do
            [[ ${all[k]} != "$configuration" ]] && continue
            refuse "'${names[i]}' is configured as '${names[k]}' is (${settings[i]}); their runs\
 would be the same"
        done
        all+=("$configuration")
    done
}

# The supervised start of the tiny model, once.
tiny_start() {
    [[ -d models/tiny ]] || "$program" init --arch qwen2 --out models/tiny --seed 1
    [[ -e runs/AEPO/tiny_start/DONE ]] ||
        "$program" sft --config experiments/AEPO/tiny_sft.yaml
}

start() {
    if [[ $model == tiny ]]; then
        tiny_start
    else
        scripts/fetch_smollm2.sh
        [[ -e runs/AEPO/start/DONE ]] || "$program" sft --config $here/sft.yaml
    fi
}

# variant NAME override ...: one of the study.
variant() {
    names+=("$1")
    shift
    settings+=("${*@Q}")
}

# train_variant STUDY NAME override ...: its runs.
train_variant() {
    local study=$1 name=$2 seed dir code
    shift 2
    for seed in $seeds; do
        dir=$home/$study/$model/$(tr -cs 'a-zA-Z0-9.\n' _ <<<"$name")/seed_$seed
        if [[ -e $dir/DONE ]]; then
            echo "$dir is finished"
        else
            echo "== $dir"
            code=0
            "$program" "${ranks[@]}" "${configs[@]}" "${overrides[@]}" trainer.run_dir="$dir" \
                data.seed="$seed" worker.rollout.seed="$seed" "$@" || code=$?
            ((code < 128)) || exit $code # stopped by a signal: so is the study
            ((code == 0)) || failed+=("$dir")
        fi
        [[ ! -s $dir/metrics.jsonl ]] || runs+=("$name=$dir")
    done
}

one_of() { # WORD, words
    local word
    for word in "${@:2}"; do [[ $word != "$1" ]] || return 0; done
    return 1
}

# draw OUT TITLE: the table and the figures.
draw() {
    # Accuracy is that of validation: its questions are the same for all variants, while the
    # questions that training asks depend on the variant (README.md).
    local columns=reward/accuracy,response_length/mean,aepo/hwe_num/easy,aepo/hwe_num/medium
    columns+=,aepo/hwe_num/hard,aepo/tau,sum:rollout/generated_tokens,sum:timing_s/step
    "$program" compare --last $(((steps + 3) / 4)) --smooth 1 --metric val/accuracy \
        --columns $columns --svg "$1/accuracy.svg" --title "$2" "${runs[@]}" | tee "$1/table.md"
    "$program" compare --smooth 1 --metric val/accuracy --x rollout/generated_tokens \
        --svg "$1/tokens.svg" --title "$2: by tokens generated" "${runs[@]}" | grep figure:
    "$program" compare --metric response_length/mean --svg "$1/length.svg" \
        --title "$2: length of responses" "${runs[@]}" | grep figure:
}

# run_study STUDY TITLE: the variants' runs; table and figures of what is there then.
run_study() {
    local out=$home/$1/$model name words i
    for name in "${only[@]}"; do
        one_of "$name" "${names[@]}" && continue
        echo "$(basename "$0"): --only: '$name': no such variant; the study has" >&2
        printf '  %s\n' "${names[@]}" >&2
        exit 2
    done
    check_variants
    if ((check)); then
        echo "$1: ${#names[@]} variants, no two the same"
        return
    fi
    start
    for i in "${!names[@]}"; do
        ((!${#only[@]})) || one_of "${names[i]}" "${only[@]}" || continue
        eval "words=(${settings[i]})"
        train_variant "$1" "${names[i]}" "${words[@]}"
    done
    ((!${#runs[@]})) || draw "$out" "$2"
    ((!${#failed[@]})) || { printf 'failed: %s\n' "${failed[@]}" >&2; exit 1; }
}
