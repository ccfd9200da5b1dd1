"""What is kept of the runs of ablation.sh --rates --tiny, and the tables of RESULTS.md
(../results.py)."""
import pathlib
import statistics
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
import results  # noqa: E402

HOME = pathlib.Path("runs/AEPO/rates/tiny")
METHODS = ("full AEPO", "no dropping", "plain GRPO, as many tokens")
RATES = ("5e-5", "1e-4", "2e-4")
CHOSEN = "5e-5"  # of all three, by the seeds above 100
LAST = 20  # steps of which means are kept
KEPT = {
    "accuracy": "reward/accuracy",
    "length": "response_length/mean",
    "hwe_easy": "aepo/hwe_num/easy",
    "hwe_medium": "aepo/hwe_num/medium",
    "hwe_hard": "aepo/hwe_num/hard",
    "difference": "exact/rollout_train_max_abs",
}


def folder_of(method, rate):
    """As study.sh names it."""
    name = "".join(c if c.isalnum() else " " for c in f"{method}, {rate}")
    return HOME / "_".join(name.split())


def one_run(method, rate, seed, path):
    rows = results.metrics(path)
    tokens, points = 0, []
    for row in rows:
        tokens += row.get("rollout/generated_tokens", 0)
        if "val/accuracy" in row:
            points.append([row["step"], int(tokens), row["val/accuracy"]])
    run = {"method": method, "rate": rate, "seed": seed, "steps": rows[-1]["step"],
           "points": points, "dropped": max(r.get("epoch/skip_gid_count", 0) for r in rows)}
    return run | results.means([r for r in rows if r["step"] > 0], KEPT, LAST)


def collect():
    runs = []
    for rate in RATES:
        for method in METHODS:
            found = folder_of(method, rate).glob("seed_*/DONE")
            for done in sorted(found, key=lambda p: int(p.parts[-2][5:])):
                runs.append(one_run(method, rate, int(done.parts[-2][5:]), done.parent))
    about = {"study": "AEPO", "commit": results.commit(), "machine": results.machine()}
    return about, runs


def spent(run):
    return run["points"][-1][1]


def at(run, tokens):
    """Validation accuracy there."""
    return results.at([(p[1], p[2]) for p in run["points"]], tokens)


def late(run, tokens):
    """Mean validation accuracy over the second half of these tokens."""
    return statistics.mean(at(run, tokens * (20 + i) / 40) for i in range(21))


def mean_of(runs, key, form):
    return f"{statistics.mean(r[key] for r in runs):{form}}"


def tables(data):
    found = {}
    for run in data["runs"]:
        what = "rates" if run["seed"] > 100 else "compared"
        found.setdefault((what, run["method"], run["rate"]), []).append(run)
    rates = [[m, *(results.per_seed(late(r, spent(r)) for r in found["rates", m, rate])
                   for rate in RATES)] for m in METHODS]

    runs = {m: found["compared", m, CHOSEN] for m in METHODS}
    longer = runs[METHODS[-1]]
    pairs, cells = {}, {}
    for method in METHODS[:-1]:
        for name, of in (("at the end", at), ("mean over the second half", late)):
            own = [of(r, spent(r)) for r in runs[method]]
            grpo = [of(b, spent(a)) for a, b in zip(runs[method], longer)]
            cells[method, name] = own, grpo
            pairs[method, name] = [a - b for a, b in zip(own, grpo)]
    p = {key: results.p_value(d) for key, d in pairs.items()}
    corrected = results.holm(p)
    equal = [[*key, results.per_seed(own), results.per_seed(grpo), results.mean(pairs[key], "+"),
              results.p_text(p[key]), results.p_text(corrected[key])]
             for key, (own, grpo) in cells.items()]
    cost = []
    for method, x in runs.items():
        begin = [r["points"][0][2] for r in x]
        tokens = [spent(r) / 1e3 for r in x]
        cost.append([method, x[0]["steps"], f"{min(tokens):.0f} to {max(tokens):.0f}",
                     results.mean(begin), mean_of(x, "dropped", ".0f"),
                     mean_of(x, "accuracy", ".2f"), mean_of(x, "length", ".1f"),
                     " / ".join(mean_of(x, f"hwe_{d}", ".1f") for d in ("easy", "medium", "hard"))])
    return {
        "rates": results.table(["validation, mean over the second half", *RATES], rates),
        "equal": results.table(["method", "validation", "by seed", "GRPO's at as many tokens",
                                "difference", "p", "p, corrected"], equal),
        "cost": results.table(["method", "steps", "tokens, thousands", "validation before",
                               "questions dropped", "accuracy of all answers", "length",
                               "HWE easy / medium / hard"], cost),
        "difference": results.table(["runs", "largest `exact/rollout_train_max_abs`"],
                                    [[len(data["runs"]),
                                      f"{max(r['difference'] for r in data['runs']):g}"]]),
    }


results.main(FOLDER, collect, tables)
