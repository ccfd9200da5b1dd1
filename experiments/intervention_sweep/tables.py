"""What is kept of the runs of run.sh, and the tables of RESULTS.md (../results.py)."""
import json
import pathlib
import shutil
import statistics
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
import results  # noqa: E402

# sweep: its folder under logs/, the runs of the model that it begins with, and its values, of which
# the others are compared with the first
FILTERS = ("1.0", "0.98", "0.95", "0.9", "0.8", "0.6", "0.4", "nofilter")
WEIGHTS = ("0", "0.001", "0.003", "0.01", "0.03", "0.1")
SWEEPS = {
    "entropy": ("entropy_sweep_sokoban_start", "unmoved_sokoban", WEIGHTS),
    "kl": ("kl_sweep_sokoban_start", "unmoved_sokoban", WEIGHTS),
    "top_p": ("top_p_sweep_sokoban_start", "unmoved_sokoban", FILTERS),
    "frozen_lake_high": ("frozenlake_high_rand_top_p_sweep_frozen_lake_start",
                         "unmoved_frozen_lake_high", FILTERS),
    "frozen_lake_low": ("frozenlake_low_rand_top_p_sweep_frozen_lake_start",
                        "unmoved_frozen_lake_low", FILTERS),
}
LAST = 10  # steps of which means are taken
MEANS = {
    "entropy": "actor/entropy",
    "kl": "actor/kl",
    "kept": "rollout/filter_kept_ratio",
    "updates": "train/num_mini_batches",
}


def one_run(sweep, value, seed, path):
    rows = results.metrics(path)
    steps = [r for r in rows if r["step"] > 0]
    run = {"sweep": sweep, "value": value, "seed": seed,
           "stopped": json.loads((path / "DONE").read_text(encoding="utf-8"))["stopped"],
           "validation": [[r["step"], r["val/accuracy"]] for r in rows if "val/accuracy" in r],
           "success": [r["reward/accuracy"] for r in steps]}
    return run | results.means(steps, MEANS, LAST)


def collect():
    folders = {unmoved: unmoved for _, unmoved, _ in SWEEPS.values()}
    folders |= {sweep: folder for sweep, (folder, _, _) in SWEEPS.items()}
    runs = []
    for sweep, folder in folders.items():
        listed = json.loads(pathlib.Path("logs", folder, "sweep.json").read_text(encoding="utf-8"))
        made, seeds = [], {run["seed"] for run in listed["runs"]}
        for run in listed["runs"]:
            value = "start" if sweep == folder else run["variant"]
            path = pathlib.Path(run["run_dir"])
            if (path / "DONE").exists():
                made.append(one_run(sweep, value, run["seed"], path))
        values = [r["value"] for r in made]  # those with a seed missing are left out
        made = [r for r in made if values.count(r["value"]) == len(seeds)]
        order = ("start",) if sweep == folder else SWEEPS[sweep][2]
        if sweep != folder:
            figure = pathlib.Path("logs", folder, "figure3.svg")
            shutil.copy(figure, FOLDER / f"results/{sweep}.svg")
        runs += sorted(made, key=lambda r: (order.index(r["value"]), r["seed"]))
    about = {"study": "intervention_sweep", "commit": results.commit(),
             "machine": results.machine()}
    return about, runs


def success(run, steps=None):
    """The share of episodes that were won in the last of these steps, by default of all."""
    return statistics.mean(run["success"][:steps][-LAST:])


def less(runs, others):
    """Differences of success run by run, in the last steps, and so the rooms, that both have."""
    pairs = [(a, b, min(len(a["success"]), len(b["success"]))) for a, b in zip(runs, others)]
    return [success(a, n) - success(b, n) for a, b, n in pairs]


def end(run):
    return run["validation"][-1][1]


def cell(runs, key, form=".2f"):
    """The mean over seeds; where a metric is missing, nothing."""
    return f"{statistics.mean(r[key] for r in runs):{form}}" if all(key in r for r in runs) else ""


def stops(runs):
    at = [str(len(r["success"])) for r in runs if r["stopped"]]
    return f"step {' / '.join(at)}" if at else ""


COLUMNS = {
    "entropy of the policy": lambda runs: cell(runs, "entropy"),
    "stopped": stops,
    "KL to the start": lambda runs: cell(runs, "kl"),
    "groups kept": lambda runs: cell(runs, "kept"),
    "optimizer steps": lambda runs: cell(runs, "updates", ".1f"),
}


def tables(data):
    found = {}
    for run in data["runs"]:
        found.setdefault(run["sweep"], {}).setdefault(run["value"], []).append(run)
    differences = {(sweep, value): less(runs, found[sweep][values[0]])
                   for sweep, (_, _, values) in SWEEPS.items()
                   for value, runs in found[sweep].items() if value != values[0]}
    # runs that are the same in every bit are no comparison
    p = {key: results.p_value(d) for key, d in differences.items() if len(set(d)) > 1}
    corrected = results.holm(p)

    made = {"start": results.table(
        ["as it began", "success, by seed", "mean", "validation"],
        [[sweep[8:], results.per_seed(map(success, runs["start"])),
          results.mean(map(success, runs["start"])), results.mean(map(end, runs["start"]))]
         for sweep, runs in found.items() if sweep.startswith("unmoved_")])}
    for sweep, (_, unmoved, values) in SWEEPS.items():
        first, start = found[sweep][values[0]], found[unmoved]["start"]
        columns = {"entropy": ("entropy of the policy", "stopped"), "kl": ("KL to the start",)}.get(
            sweep, ("groups kept", "optimizer steps"))
        rows = []
        for value, runs in found[sweep].items():
            key = (sweep, value)
            row = [value, results.per_seed(map(success, runs)),
                   results.mean(less(runs, start), "+")]
            row += [results.mean(differences[key], "+") if key in differences else "",
                    results.p_text(p[key]) if key in p else "",
                    results.p_text(corrected[key]) if key in p else ""]
            row += [COLUMNS[c](runs) for c in columns]
            row += [results.mean(map(end, runs)),
                    "" if runs is first else
                    results.mean([end(a) - end(b) for a, b in zip(runs, first)], "+")]
            rows.append(row)
        made[sweep] = results.table(
            [sweep if sweep in ("entropy", "kl") else "top-p", "success, by seed",
             "more than the start", f"less {values[0]}", "p", "p, corrected", *columns,
             "validation, last", f"less {values[0]}"], rows)
    count = results.table(["comparisons of success", "runs"], [[len(p), len(data["runs"])]])
    return made | {"count": count}


results.main(FOLDER, collect, tables)
