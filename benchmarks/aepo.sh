#!/usr/bin/env bash
# What AEPO's own stages cost: thresholds, HWE tokens, difficulties and KL weights (observe), the
# shaped score (score) and the controllers (adapt), as a share of the step, from the metrics of
# finished or running runs. One JSON line per run. What AEPO makes the model do (more draws, the
# bootstrap pass, a reference) is not in it; gen_s and ref_s are printed beside it.
#
#   benchmarks/aepo.sh [RUN_DIR ...]
#       without RUN_DIR: experiments/AEPO/train.sh --tiny, once, into runs/AEPO/tiny
set -euo pipefail
cd "$(dirname "$0")/.."
if ((!$#)); then
    [[ -e runs/AEPO/tiny/DONE ]] || experiments/AEPO/train.sh --tiny >&2
    set -- runs/AEPO/tiny
fi
for run; do
    awk -v run="$run" '
        function of(name,    before) {
            before = length(name) + 3
            if (!match($0, "\"" name "\":[-+.0-9e]+")) return 0
            return substr($0, RSTART + before, RLENGTH - before) + 0
        }
        /"timing_s\/step":/ {
            steps++; own += of("timing_s/observe") + of("timing_s/score") + of("timing_s/adapt")
            gen += of("timing_s/gen"); ref += of("timing_s/ref"); step += of("timing_s/step")
        }
        END {
            if (!steps) exit 1
            printf "{\"run\":\"%s\",\"steps\":%d,\"own_s\":%.6f,", run, steps, own
            printf "\"gen_s\":%.3f,\"ref_s\":%.3f,\"step_s\":%.3f,", gen, ref, step
            printf "\"share\":%.6f}\n", own / step
        }
    ' "$run/metrics.jsonl" || { echo "aepo.sh: $run: no steps in metrics.jsonl" >&2; exit 1; }
done
