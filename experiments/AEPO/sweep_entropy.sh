#!/usr/bin/env bash
# Which tokens count as high in entropy: windows of 2, 4 and 8 tokens, thresholds at the 90th, 95th
# and 98th percentile.
#
#   experiments/AEPO/sweep_entropy.sh [--tiny] [--seeds "1 2 3"] [--check] [key=value ...]
set -euo pipefail
source "$(dirname "$0")/study.sh"
read_words "$@"
for window in 2 4 8; do
    for percentile in 90 95 98; do
        variant "window ${window}, percentile ${percentile}" \
            worker.rollout.window_size=$window algorithm.entropy_percentile=$percentile
    done
done
run_study sweep_entropy "AEPO by entropy window and percentile"
