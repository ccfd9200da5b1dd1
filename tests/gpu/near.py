"""Whether two runs have the same metrics: tests/gpu/near.py RUN OTHER TOLERANCE.

Every number of metrics.jsonl must agree within the tolerance times its size, at least times 1.
Times, rates, memory, exact/* (what differs by rounding itself), forward passes (a card decodes a step
ahead, also of an answer that has ended), graphs (a CPU has none), drafts and the share of
active tokens (a card has none) are left out. Prints the worst metric; exit status 1 where one
disagrees, or where fewer than 10 were compared.
"""

import json
import sys

SPEED = ("timing_s/", "timing_per_token_ms/", "perf/", "exact/", "rollout/forward_passes",
         "rollout/drafted_tokens", "rollout/accepted_tokens", "rollout/draft_accept_frac",
         "rollout/graph_steps", "rollout/refused_graphs", "update/active_frac")


def rows(run):
    with open(run + "/metrics.jsonl") as file:
        return [json.loads(line) for line in file]


def main():
    run, other, tolerance = sys.argv[1], sys.argv[2], float(sys.argv[3])
    mine, theirs = rows(run), rows(other)
    wrong, compared, worst = [], 0, (0.0, "nothing")
    if len(mine) != len(theirs):
        wrong.append("%d rows, %d rows" % (len(mine), len(theirs)))
    for step, (a, b) in enumerate(zip(mine, theirs)):
        if set(k for k in a if not k.startswith(SPEED)) != set(k for k in b if not k.startswith(SPEED)):
            wrong.append("row %d: not the same metrics" % step)
        for key, x in a.items():
            y = b.get(key)
            if key.startswith(SPEED) or key not in b:
                continue
            if (x is None) != (y is None):  # null: not finite
                wrong.append("row %d: %s is %s, and %s" % (step, key, x, y))
            if not isinstance(x, (int, float)) or not isinstance(y, (int, float)):
                continue
            compared += 1
            far = abs(x - y) / max(1.0, abs(x))
            worst = max(worst, (far, key))
            if not far <= tolerance:
                wrong.append("row %d: %s is %.9g, and %.9g" % (step, key, x, y))
    for line in wrong[:8]:
        print("   " + line)
    print("   %d metrics compared; farthest: %s, %.2g" % (compared, worst[1], worst[0]))
    return 1 if wrong or compared < 10 else 0


sys.exit(main())
