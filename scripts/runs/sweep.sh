# Sourced by the sweeps here: the flags of RAGEN's scripts become words of `ares-train sweep`.
#
#   --steps N                    training steps (400)
#   --gpus LIST                  cards, such as 0,1,2 (all that are there)
#   --gpus-per-exp N             cards of a run; divides their number (1)
#   --gpu-memory-utilization V   accepted; the cache of a run takes what is left beside the weights
#   --save-freq N                steps between checkpoints (-1: one at the end)
#   --model DIR                  a model's folder; runs are named after it (the published model)
#   --name NAME                  of the sweep and its folders; a trial needs one of its own
#   --seeds LIST                 a run of every value with each seed (the configuration's own)
#   --dry-run                    print commands, names and order; train nothing
#   --force                      begin finished and changed runs anew; what is there is moved aside
#   key=value ...                overrides of every run, such as trainer.device=cpu
#
# Every flag also takes its value as --flag=value. A finished run is skipped, one that was stopped
# goes on.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=${ARES_TRAIN:-build/ares-train}
words=()

refuse() { # message
    echo "$(basename "$0"): $1" >&2
    exit 2
}

help() {
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    sed -n '/^#   /s/^# \{0,1\}//p' scripts/runs/sweep.sh
    exit 0
}

# True or False, as RAGEN's scripts write it.
truth() { # flag word
    case ${2,,} in
    true | 1 | yes | y) echo True ;;
    false | 0 | no | n) echo False ;;
    *) refuse "$1 = '$2': expected true or false" ;;
    esac
}

# One flag that all sweeps have.
common() { # flag value
    case $1 in
    --steps) words+=(--let "steps=$2") ;;
    --save-freq) words+=(--let "save_freq=$2") ;;
    --gpu-memory-utilization) words+=(--let "gpu_memory_utilization=$2") ;;
    --gpus) words+=(--gpus "$2") ;;
    --gpus-per-exp) words+=(--ranks "$2") ;;
    --seeds) words+=(--seeds "$2") ;;
    --model) words+=(--let "model_path=$2") ;;
    --name) words+=(--name "$2") ;;
    *) refuse "'$1': no such option (see --help)" ;;
    esac
}

# What a script asks for once all flags are read.
required() { :; }

# run_sweep FILE word ...: own_flag, which the script defines, takes the script's own flags.
run_sweep() {
    local file=$1 flag value
    shift
    while (($#)); do
        case $1 in
        -h | --help) help ;;
        --dry-run | --force) words+=("$1") && shift && continue ;;
        --*=*) flag=${1%%=*} value=${1#*=} ;;
        --*)
            (($# > 1)) || refuse "$1 needs a value (see --help)"
            flag=$1 value=$2
            shift
            ;;
        worker.actor.model.model_path=* | model_path=*)
            refuse "'$1': runs are named after their model; say --model ${1#*=}"
            ;;
        *=*) words+=("$1") && shift && continue ;;
        *) refuse "'$1': no such option (see --help)" ;;
        esac
        own_flag "$flag" "$value" || common "$flag" "$value"
        shift
    done
    required
    [[ -x $program ]] || refuse "no $program; build it first, or set ARES_TRAIN"
    exec "$program" sweep --sweep "configs/sweeps/$file" "${words[@]}"
}
