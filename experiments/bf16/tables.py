"""What is kept of the runs of study.sh, and the tables of RESULTS.md (../results.py)."""
import pathlib
import statistics
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
import results  # noqa: E402

HOME = pathlib.Path("runs/bf16")
LAST = 5  # steps of a run, over which samples are averaged
NAMES = ("fp32", "bf16")
T_4 = 2.776  # Student's t: 95 % of it, two-sided, with four degrees of freedom


def one_run(arithmetic, seed, path):
    rows = results.metrics(path)
    accuracies = [r["val/accuracy"] for r in rows if "val/accuracy" in r]
    return {
        "arithmetic": arithmetic, "seed": seed,
        "accuracy": [round(r["reward/accuracy"], 4) for r in rows if "reward/accuracy" in r],
        "start": round(accuracies[0], 4), "validation": round(accuracies[-1], 4),
        "grad_norm": round(statistics.mean(r["actor/grad_norm"] for r in rows
                                           if "actor/grad_norm" in r), 4),
        "gib": max(r.get("perf/cpu_memory_used_gb", 0) for r in rows),
        "off": max(r.get("exact/rollout_train_max_abs", 0) for r in rows),
    }


def collect():
    runs = []
    for done in sorted(HOME.glob("*/*/DONE")):
        arithmetic, seed = done.parts[-3:-1]
        if arithmetic in NAMES:
            runs.append(one_run(arithmetic, int(seed), done.parent))
    runs.sort(key=lambda r: (NAMES.index(r["arithmetic"]), r["seed"]))
    return {"study": "bf16", "commit": results.commit(), "machine": results.machine()}, runs


def samples(run):
    """Share of right answers among those sampled, over the last steps."""
    return statistics.mean(run["accuracy"][-LAST:])


def first(run):
    return statistics.mean(run["accuracy"][:LAST])


def validation(run):
    return run["validation"]


MEASURES = {"samples": samples, "validation": validation}


def tables(data):
    found = {}
    for run in data["runs"]:
        found.setdefault(run["arithmetic"], []).append(run)
    ends = [[name, *(results.mean(map(of, runs)) for of in (first, samples)),
             results.mean(r["start"] for r in runs), results.mean(map(validation, runs)),
             results.mean(r["grad_norm"] for r in runs), max(r["off"] for r in runs)]
            for name, runs in found.items()]
    less = {name: [of(x) - of(y) for x, y in zip(found["bf16"], found["fp32"])]
            for name, of in MEASURES.items()}
    corrected = results.holm({key: results.p_value(d) for key, d in less.items()})
    pairs = []
    for key, d in less.items():
        width, middle = T_4 * statistics.stdev(d) / len(d) ** 0.5, statistics.mean(d)
        pairs.append([key, results.per_seed(d, "+", 3), results.mean(d, "+"),
                      f"{middle - width:+.3f} to {middle + width:+.3f}",
                      results.p_text(results.p_value(d)), results.p_text(corrected[key])])
    seeds = [[name, *(results.per_seed(map(of, runs)) for of in MEASURES.values())]
             for name, runs in found.items()]
    return {
        "ends": results.table(["products in", "samples, steps 1 to 5", "samples, steps 16 to 20",
                               "validation before", "validation after", "gradient's norm",
                               "rollout from training"], ends),
        "less": results.table(["bf16, less fp32", "seed by seed", "mean", "95 %", "p",
                               "p, corrected"], pairs),
        "seeds": results.table(["seed by seed", *MEASURES], seeds),
    }


results.main(FOLDER, collect, tables)
