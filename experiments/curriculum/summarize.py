"""Prints the tables of RESULTS.md: python3 summarize.py DIR SEED ..."""
import json
import pathlib
import statistics
import sys

VARIANTS = ("curriculum", "constant", "weights alone", "reversed", "hard alone")
AGAINST = "constant"
SETS = ("easy", "hard")


def read(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").open(encoding="utf-8")]


def mean(values, sign=""):
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0
    return f"{statistics.mean(values):{sign}.3f} ± {error:.3f}"


def last(rows, metric):
    return next(r[metric] for r in reversed(rows) if metric in r)


def scores(rows):
    """Right answers at the end: to easy questions, to hard ones, and the mean of both."""
    found = [last(rows, f"eval/{s}") for s in SETS]
    return found + [statistics.mean(found)]


def results(found):
    print("| | easy | less constant | hard | less constant | both | less constant |")
    print("|---|---|---|---|---|---|---|")
    for variant, runs in found.items():
        cells = [variant]
        for k in range(3):
            cells.append(mean([scores(x)[k] for x in runs]))
            pairs = [scores(x)[k] - scores(y)[k] for x, y in zip(runs, found[AGAINST])]
            cells.append("" if variant == AGAINST else mean(pairs, "+"))
        print("| " + " | ".join(cells) + " |")


def pairs(found):
    print("\n| hard sums, less constant | run by run |\n|---|---|")
    for variant, runs in found.items():
        if variant != AGAINST:
            less = [scores(x)[1] - scores(y)[1] for x, y in zip(runs, found[AGAINST])]
            print(f"| {variant} | " + " / ".join(f"{x:+.3f}" for x in less) + " |")


def part(rows, name):
    """Share of the samples trained on that come from the data set."""
    counts = [sum(r.get(f"rollout/{s}/sample_count", 0) for r in rows) for s in SETS]
    return counts[SETS.index(name)] / sum(counts)


def total(rows, metric):
    return sum(r[metric] for r in rows)


def costs(found):
    print("\n| | share of hard sums in the batches | draws per step | groups dropped | "
          "tokens generated, thousands |")
    print("|---|---|---|---|---|")
    for variant, runs in found.items():
        steps = [[r for r in rows if r["step"] > 0] for rows in runs]
        made = sum(total(s, "filter/generated_groups") for s in steps)
        kept = sum(total(s, "filter/kept_groups") for s in steps)
        values = [
            f"{statistics.mean([part(s, 'hard') for s in steps]):.2f}",
            f"{statistics.mean([r['filter/tries'] for s in steps for r in s]):.1f}",
            f"{1 - kept / made:.2f}",
            f"{statistics.mean([total(s, 'rollout/generated_tokens') for s in steps]) / 1e3:.0f}",
        ]
        print(f"| {variant} | " + " | ".join(values) + " |")


def main():
    folder, seeds = pathlib.Path(sys.argv[1]), sys.argv[2:]
    runs = {v: [folder / v.replace(" ", "_") / s for s in seeds] for v in VARIANTS}
    found = {v: list(map(read, r)) for v, r in runs.items() if all(x.exists() for x in r)}
    before = [read(folder / AGAINST / s)[0] for s in seeds]
    print("before training: " + ", ".join(f"{s} {mean([r[f'eval/{s}'] for r in before])}"
                                          for s in SETS) + "\n")
    results(found)
    pairs(found)
    costs(found)


main()
