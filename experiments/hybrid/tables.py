"""What is kept of the runs of study.sh, and the tables of RESULTS.md (../results.py)."""
import pathlib
import statistics
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
import results  # noqa: E402

HOME = pathlib.Path("runs/hybrid")
NAMES = {"grpo": "GRPO", "ppo": "PPO"}
ENDS = 5  # steps at each end of a run, over which samples are averaged


def one_run(kind, method, rate, seed, path):
    rows = results.metrics(path)
    greedy = [round(r["val/accuracy"], 4) for r in rows if "val/accuracy" in r]
    return {"kind": kind, "method": method, "rate": rate, "seed": seed,
            "scores": [round(r["critic/score/mean"], 4) for r in rows if "critic/score/mean" in r],
            "greedy": [greedy[0], greedy[-1]],
            "off": max(r.get("exact/rollout_train_max_abs", 0) for r in rows)}


def collect():
    runs = [one_run(*p.parts[-5:-2], int(p.parts[-2]), p.parent)
            for p in sorted(HOME.glob("s*/*/*/*/DONE"))]
    runs.sort(key=lambda r: (r["kind"], list(NAMES).index(r["method"]), -float(r["rate"]), r["seed"]))
    return {"study": "hybrid", "commit": results.commit(), "machine": results.machine()}, runs


def first(run):
    return statistics.mean(run["scores"][:ENDS])


def last(run):
    return statistics.mean(run["scores"][-ENDS:])


def tables(data):
    found = {}
    for run in data["runs"]:
        if run["kind"] == "study":
            found.setdefault((run["method"], run["rate"]), []).append(run)
    ends = [[NAMES[method], rate, results.per_seed(map(first, runs)),
             results.per_seed(map(last, runs)),
             results.per_seed((r["greedy"][0] for r in runs)),
             results.per_seed((r["greedy"][1] for r in runs)), max(r["off"] for r in runs)]
            for (method, rate), runs in found.items()]
    less = []
    for method in NAMES:
        learnt = next((of for (m, rate), of in found.items() if m == method and float(rate)), [])
        still = next((of for (m, rate), of in found.items() if m == method and not float(rate)), [])
        more = [(last(x) - first(x)) - (last(y) - first(y)) for x, y in zip(learnt, still)]
        if len(more) > 1:
            less.append([NAMES[method], results.per_seed(more, "+", 3), results.mean(more, "+")])
    scan = [[NAMES[r["method"]], r["rate"], f"{first(r):.3f}", f"{last(r):.3f}",
             f"{r['greedy'][0]:.3f}", f"{r['greedy'][1]:.3f}"]
            for r in data["runs"] if r["kind"] == "scan"]
    return {
        "ends": results.table(["", "learning rate", "samples, first 5 steps", "samples, last 5",
                               "greedy, before", "greedy, after", "rollout from training"], ends),
        "less": results.table(["rise of samples, less that at rate 0", "seed by seed", "mean"], less),
        "scan": results.table(["", "learning rate", "samples, first 5 steps", "samples, last 5",
                               "greedy, before", "greedy, after"], scan),
    }


results.main(FOLDER, collect, tables)
