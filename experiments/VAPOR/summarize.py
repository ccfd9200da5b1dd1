"""Prints the table of RESULTS.md: python3 summarize.py DIR SEED ..."""
import json
import pathlib
import statistics
import sys

METHODS = ("both", "span", "detached", "grpo", "dpo", "dpo_bare", "span_dpo")
LAST = 20  # steps


def shares(run):
    """Right digits, the word "yes", and both tags found: shares of the last steps' answers."""
    files = sorted(run.glob("rollouts/step_*.jsonl"))[-LAST:]
    rows = [json.loads(line) for f in files for line in f.open()]
    right = sum(f"<N>{r['ground_truth']}</N>" in r["response"] for r in rows)
    yes = sum("<S>yes</S>" in r["response"] for r in rows)
    whole = sum("</N>" in r["response"] and "</S>" in r["response"] for r in rows)
    return [x / len(rows) for x in (right, yes, whole)]


def mean(values):
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0
    return f"{statistics.mean(values):.3f} ± {error:.3f}"


def main():
    folder, seeds = pathlib.Path(sys.argv[1]), sys.argv[2:]
    found = {m: [shares(folder / m / s) for s in seeds] for m in METHODS}
    print("| | right digit | difference to both | \"yes\" | difference to both | both tags |")
    print("|---|---|---|---|---|---|")
    for m in METHODS:
        cells = [m]
        for k in range(2):
            cells.append(mean([x[k] for x in found[m]]))
            pairs = [x[k] - y[k] for x, y in zip(found[m], found["both"])]
            cells.append("" if m == "both" else mean(pairs))
        cells.append(mean([x[2] for x in found[m]]))
        print("| " + " | ".join(cells) + " |")


main()
