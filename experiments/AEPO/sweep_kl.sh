#!/usr/bin/env bash
# How free HWE tokens are: their KL weighed by 0.25, 0.5 and 1, under each controller of the
# difficulties' weights.
#
#   experiments/AEPO/sweep_kl.sh [--tiny] [--seeds "1 2 3"] [--check] [key=value ...]
set -euo pipefail
source "$(dirname "$0")/study.sh"
read_words "$@"
for controller in dual_ascent log_space none; do
    for scale in 0.25 0.5 1.0; do
        # in a short run log_space must move at every optimizer step, not at every hundredth
        variant "$controller, HWE scale $scale" algorithm.kl_bucket_controller=$controller \
            algorithm.hwe_kl_scale=$scale algorithm.kl_beta_update_interval=1
    done
done
run_study sweep_kl "AEPO by KL controller and weight of HWE tokens"
