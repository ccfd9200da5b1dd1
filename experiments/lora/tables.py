"""What is kept of the runs of study.sh, and the tables of RESULTS.md (../results.py)."""
import pathlib
import statistics
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
import results  # noqa: E402

HOME = pathlib.Path("runs/lora")
LAST = 6  # steps of a run, over which samples are averaged
NAMES = {"full": "all weights", "rank16": "rank 16", "rank1": "rank 1"}
# which is compared with which: the claim is that none of them differs
PAIRS = (("rank16", "full"), ("rank1", "full"), ("rank1", "rank16"))
VALIDATION = {"validation": "val/reward_score", "right": "val/accuracy",
              "finished": "val/finished_frac"}
T_4 = 2.776  # Student's t: 95 % of it, two-sided, with four degrees of freedom


def one_run(kind, method, rate, seed, path):
    rows = results.metrics(path)
    return {
        "kind": kind, "method": method, "rate": rate, "seed": seed,
        "scores": [round(r["critic/score/mean"], 4) for r in rows if "critic/score/mean" in r],
        **{key: round(results.last(rows, name), 4) for key, name in VALIDATION.items()},
        "gib": max(r.get("perf/cpu_memory_used_gb", 0) for r in rows),
        "off": max(r.get("exact/rollout_train_max_abs", 0) for r in rows),
    }


def collect():
    runs = []
    for done in sorted(HOME.glob("*/*/*/*/DONE")):
        kind, method, rate, seed = done.parts[-5:-1]
        runs.append(one_run(kind, method, rate, int(seed), done.parent))
    order = list(NAMES)
    runs.sort(key=lambda r: (r["kind"], order.index(r["method"]), float(r["rate"]), r["seed"]))
    lines = (HOME / "start.log").read_text(encoding="utf-8").splitlines()
    said = dict(line.split() for line in lines if line.startswith("val/"))
    start = {key: float(said[name]) for key, name in VALIDATION.items()}
    about = {"study": "lora", "commit": results.commit(), "machine": results.machine(),
             "start": start}
    return about, runs


def curve(runs, first, last):
    """Score of sampled answers over these steps."""
    return results.mean(statistics.mean(r["scores"][first - 1:last]) for r in runs)


def samples(run):
    """Score of sampled answers, over the last steps."""
    return statistics.mean(run["scores"][-LAST:])


def validation(run):
    return run["validation"]


def right(run):
    return run["right"]


MEASURES = {"samples": samples, "validation": validation}


def rates_table(runs):
    rows = []
    for run in runs:
        rows.append([NAMES[run["method"]], run["rate"], f"{samples(run):.3f}",
                     f"{validation(run):.3f}", f"{right(run):.3f}", f"{run['finished']:.3f}"])
    return results.table(["", "learning rate", "samples, last 6 steps", "validation",
                          "right in validation", "finished in validation"], rows)


def tables(data):
    found = {}
    for run in data["runs"]:
        if run["kind"] == "study":
            found.setdefault(run["method"], []).append(run)
    start = data["start"]
    ends = [["untrained", "", "", f"{start['validation']:.3f}", f"{start['right']:.3f}",
             f"{start['finished']:.3f}", "", ""]]
    for method, runs in found.items():
        ends.append([NAMES[method], runs[0]["rate"], *(results.mean(map(of, runs)) for of in
                     (samples, validation, right, lambda r: r["finished"])),
                     f"{max(r['gib'] for r in runs):.2f}", max(r["off"] for r in runs)])
    less = {(a, b, name): [of(x) - of(y) for x, y in zip(found[a], found[b])]
            for name, of in MEASURES.items() for a, b in PAIRS}
    corrected = results.holm({key: results.p_value(d) for key, d in less.items()})
    pairs = []
    for key, d in less.items():
        width = T_4 * statistics.stdev(d) / len(d) ** 0.5
        middle = statistics.mean(d)
        pairs.append([key[2], f"{NAMES[key[0]]}, less {NAMES[key[1]]}",
                      results.per_seed(d, "+", 3), results.mean(d, "+"),
                      f"{middle - width:+.3f} to {middle + width:+.3f}",
                      results.p_text(results.p_value(d)), results.p_text(corrected[key])])
    curves = [[NAMES[method], *(curve(runs, first, first + 4) for first in range(1, 20, 5))]
              for method, runs in found.items()]
    seeds = [[NAMES[method], *(results.per_seed(map(of, runs)) for of in MEASURES.values())]
             for method, runs in found.items()]
    return {
        "seeds": results.table(["seed by seed", *MEASURES], seeds),
        "curves": results.table(["samples in steps", "1 to 5", "6 to 10", "11 to 15", "16 to 20"],
                                curves),
        **{kind: rates_table([r for r in data["runs"] if r["kind"] == kind])
           for kind in ("scan", "rates")},
        "ends": results.table(["", "learning rate", "samples, last 6 steps", "validation",
                               "right in validation", "finished in validation", "GiB at most",
                               "rollout from training"], ends),
        "less": results.table(["score of", "methods", "seed by seed", "mean", "95 %", "p",
                               "p, corrected"], pairs),
    }


results.main(FOLDER, collect, tables)
