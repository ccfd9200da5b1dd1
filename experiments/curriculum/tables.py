"""What is kept of the runs of reach/study.sh, and the tables of RESULTS.md (../results.py)."""
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
import results  # noqa: E402

HOME = pathlib.Path("runs/curriculum/reach")
BUDGET = 70e3  # generated tokens
# which is compared with which: every curriculum with both constant weights, and one kind of
# question alone with the constant weights that did best on the seeds of the learning rates
PAIRS = (("rising_40", "constant_25"), ("rising_40", "constant_50"), ("rising_15", "constant_25"),
         ("rising_15", "constant_50"), ("hard_alone", "constant_25"), ("easy_alone", "constant_25"))
NAMES = {
    "rising_15": "hard from 0.1 to 0.9 in 15 steps",
    "rising_40": "hard from 0.1 to 0.9 in 40 steps",
    "rising_mild": "hard from 0.25 to 0.75 in 30 steps",
    "constant_25": "hard 0.25",
    "constant_50": "hard 0.5",
    "constant_75": "hard 0.75",
    "hard_alone": "hard alone",
    "easy_alone": "easy alone",
}


def one_run(kind, variant, rate, seed, path):
    tokens, points = 0, []
    for row in results.metrics(path):
        tokens += row.get("rollout/generated_tokens", 0)
        if "eval/hard" in row:
            points.append([row["step"], int(tokens), row["eval/easy"], row["eval/hard"]])
    return {"kind": kind, "variant": variant, "rate": rate, "seed": seed, "points": points}


def collect():
    runs = []
    for done in sorted(HOME.glob("*/*/*/*/DONE")):
        kind, variant, rate, seed = done.parts[-5:-1]
        runs.append(one_run(kind, variant, rate, int(seed), done.parent))
    order = list(NAMES)
    runs.sort(key=lambda r: (r["kind"], order.index(r["variant"]), float(r["rate"]), r["seed"]))
    about = {"study": "curriculum", "commit": results.commit(), "machine": results.machine()}
    return about, runs


def curve(run, column):
    return [(p[1], p[column]) for p in run["points"]]


def area(points):
    """The mean over the budget."""
    inside = [p for p in points if p[0] < BUDGET] + [(BUDGET, results.at(points, BUDGET))]
    return sum((a[1] + b[1]) / 2 * (b[0] - a[0]) for a, b in zip(inside, inside[1:])) / BUDGET


def hard_area(run):
    return area(curve(run, 3))


def hard_end(run):
    return results.at(curve(run, 3), BUDGET)


def easy_end(run):
    return results.at(curve(run, 2), BUDGET)


def rates_table(runs):
    rates = sorted({r["rate"] for r in runs}, key=float)
    rows = []
    for variant in dict.fromkeys(r["variant"] for r in runs):
        cells = []
        for rate in rates:
            x = [hard_area(r) for r in runs if r["variant"] == variant and r["rate"] == rate]
            cells.append(results.per_seed(x))
        rows.append([NAMES[variant], *cells])
    return results.table(["right hard answers, mean over the tokens", *rates], rows)


def tables(data):
    found = {}
    for run in data["runs"]:
        if run["kind"] == "study":
            found.setdefault(run["variant"], []).append(run)
    measures = {"hard, mean over the tokens": hard_area, "hard, at the end": hard_end,
                "easy, at the end": easy_end}
    rows = [[NAMES[v], runs[0]["rate"], *(results.mean(map(of, runs)) for of in measures.values()),
             sum(hard_end(r) < 0.5 for r in runs)] for v, runs in found.items()]
    less = {(v, against, name): [of(a) - of(b) for a, b in zip(found[v], found[against])]
            for v, against in PAIRS for name, of in measures.items()}
    p = {key: results.p_value(d) for key, d in less.items()}
    corrected = results.holm(p)
    pairs = [[f"{NAMES[key[0]]}, less {NAMES[key[1]]}", key[2], results.per_seed(d, "+", 2),
              results.mean(d, "+"), results.p_text(p[key]), results.p_text(corrected[key])]
             for key, d in less.items()]
    first = []
    for variant, runs in found.items():
        before = [r["points"][0] for r in runs]
        first.append([NAMES[variant], runs[0]["points"][-1][0],
                      f"{min(r['points'][-1][1] for r in runs) / 1e3:.0f}",
                      results.mean(b[2] for b in before), results.mean(b[3] for b in before)])
    return {
        "rates": rates_table([r for r in data["runs"] if r["kind"] == "rates"]),
        "ends": results.table(
            ["variant", "learning rate", *measures, "runs of ten below 0.5 hard"], rows),
        "less": results.table(["variants", "right answers", "run by run", "mean", "p",
                               "p, corrected"], pairs),
        "before": results.table(["variant", "steps", "thousand tokens, at least",
                                 "easy, before", "hard, before"], first),
    }


results.main(FOLDER, collect, tables)
