#!/usr/bin/env bash
# AEPO from the start: the supervised start when its run is not finished, then
# experiments/AEPO/config.yaml. A second call goes on where the first was interrupted.
#
#   experiments/AEPO/train.sh [--tiny] [--ranks N] [--check] [key=value ...]
set -euo pipefail
source "$(dirname "$0")/study.sh"
read_words "$@"
((!check)) || exec "$program" "${configs[@]}" "${overrides[@]}" --check
start
exec "$program" "${ranks[@]}" "${configs[@]}" "${overrides[@]}"
