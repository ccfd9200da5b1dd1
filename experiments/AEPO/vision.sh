#!/usr/bin/env bash
# AEPO on pictures: a random vision model (ares-train init) and its supervised start when they are
# not there, then experiments/AEPO/vision.yaml. A second call goes on where the first was
# interrupted. --study: that run beside its controls, which must not rise: a learning rate of 0, and
# pictures exchanged among rows.
#
#   experiments/AEPO/vision.sh [--study] [--seeds "1 2 3"] [--ranks N] [--check] [key=value ...]
set -euo pipefail
study=0
[[ ${1:-} != --study ]] || { study=1; shift; }
source "$(dirname "$0")/study.sh"
model=vision
configs=(--config $here/vision.yaml)
read_words "$@"
start() {
    [[ -d models/tiny_vl ]] ||
        "$program" init --arch qwen2_5_vl --vision-patch 6 --initializer-range 0.09 \
            --out models/tiny_vl --seed 1
    [[ -e runs/AEPO/vision_start/DONE ]] || "$program" sft --config $here/vision_sft.yaml
}
if ((study)); then
    variant AEPO
    variant "learning rate 0" worker.actor.optim.lr=0
    variant "pictures exchanged" data.train_files=$here/data/pictures_shuffled.jsonl
    run_study pictures "AEPO on pictures"
    exit
fi
((!check)) || exec "$program" "${configs[@]}" "${overrides[@]}" --check
start
exec "$program" "${ranks[@]}" "${configs[@]}" "${overrides[@]}"
