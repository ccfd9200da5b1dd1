#!/usr/bin/env bash
# What AEPO's own stages cost: thresholds, HWE tokens, difficulties and KL weights (observe), the shaped score (score) and the
# controllers (adapt), as a share of the step, from the metrics of finished or running runs. One JSON line a run. What AEPO makes the
# model do (more draws, the bootstrap pass, a reference) is not in it; gen_s and ref_s stand beside.
#
#   benchmarks/aepo.sh [RUN_DIR ...]      without: experiments/AEPO/train.sh --tiny, once, into runs/AEPO/tiny
set -euo pipefail
cd "$(dirname "$0")/.."
if ((!$#)); then
    [[ -e runs/AEPO/tiny/DONE ]] || experiments/AEPO/train.sh --tiny >&2
    set -- runs/AEPO/tiny
fi
for run; do
    awk -v run="$run" '
        function of(name) { return match($0, "\"" name "\":[-+.0-9e]+") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0 : 0 }
        /"timing_s\/step":/ {
            steps++; own += of("timing_s/observe") + of("timing_s/score") + of("timing_s/adapt")
            gen += of("timing_s/gen"); ref += of("timing_s/ref"); step += of("timing_s/step")
        }
        END { if (!steps) exit 1
              printf "{\"run\":\"%s\",\"steps\":%d,\"own_s\":%.6f,\"gen_s\":%.3f,\"ref_s\":%.3f,\"step_s\":%.3f,\"share\":%.6f}\n", run, steps, own, gen, ref, step, own / step }
    ' "$run/metrics.jsonl" || { echo "aepo.sh: $run: no steps in metrics.jsonl" >&2; exit 1; }
done
