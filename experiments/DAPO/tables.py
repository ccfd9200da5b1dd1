"""What is kept of the runs of ablation.sh --tiny, and the tables of RESULTS.md (../results.py)."""
import pathlib
import statistics
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
import results  # noqa: E402

HOME = pathlib.Path("runs/DAPO/ablation/tiny")
VARIANTS = ("full DAPO", "no clip-higher", "no dynamic sampling", "no token-level loss",
            "no overlong shaping", "GRPO", "GRPO, as many tokens")
LAST = 10  # steps of which means are kept
KEPT = {
    "entropy": "actor/entropy",
    "length": "response_length/mean",
    "draws": "dapo/num_gen_rounds",
    "fill": "dapo/batch_fill",
    "held": "actor/pg_clipfrac_higher",
    "difference": "exact/rollout_train_max_abs",
}


def folder_of(variant):
    """As study.sh names it."""
    name = "".join(c if c.isalnum() or c == "." else " " for c in variant)
    return HOME / "_".join(name.split())


def one_run(path, variant, seed):
    rows = results.metrics(path)
    steps = [r for r in rows if r["step"] > 0]
    run = {"variant": variant, "seed": seed, "steps": steps[-1]["step"],
           "tokens": sum(r["rollout/generated_tokens"] for r in steps)}
    run["validation"] = [[r["step"], r["val/accuracy"]] for r in rows if "val/accuracy" in r]
    return run | results.means(steps, KEPT, LAST)


def collect():
    runs = []
    for variant in VARIANTS:
        found = folder_of(variant).glob("seed_*/DONE")
        for done in sorted(found, key=lambda p: int(p.parts[-2][5:])):
            runs.append(one_run(done.parent, variant, int(done.parts[-2][5:])))
    about = {"study": "DAPO", "commit": results.commit(), "machine": results.machine()}
    return about, runs


def end(run):
    return run["validation"][-1][1]


def tables(data):
    runs = {v: [r for r in data["runs"] if r["variant"] == v] for v in VARIANTS}
    start = [r["validation"][0][1] for r in runs["full DAPO"]]
    ends = [[v, results.per_seed(map(end, runs[v])), results.mean(map(end, runs[v]))] for v in VARIANTS]
    ends.insert(0, ["before training", results.per_seed(start), results.mean(start)])
    less, raw = [], {}
    for v in VARIANTS[1:]:
        differences = [end(a) - end(b) for a, b in zip(runs[v], runs["full DAPO"])]
        raw[v] = results.p_value(differences)
        less.append([v, results.per_seed(differences, "+"), results.mean(differences, "+")])
    corrected = results.holm(raw)
    for v, row in zip(raw, less):
        row += [results.p_text(raw[v]), results.p_text(corrected[v])]
    cost = []
    for v in VARIANTS:
        x = runs[v]
        cell = lambda key, form: f"{statistics.mean(r[key] for r in x):{form}}" if key in x[0] else ""
        tokens = [r["tokens"] / 1e3 for r in x]
        cost.append([v, x[0]["steps"], cell("entropy", ".3f"), cell("length", ".1f"),
                     cell("draws", ".1f"), f"{100 * statistics.mean(r['held'] for r in x):.2f} %",
                     f"{min(tokens):.0f} to {max(tokens):.0f}"])
    return {
        "ends": results.table(["variant", "after the last step, by seed", "mean"], ends),
        "less": results.table(
            ["variant", "less full DAPO, run by run", "mean", "p", "p, corrected"], less),
        "cost": results.table(["variant", "steps", "entropy", "length", "draws", "a clip holds",
                               "tokens, thousands"], cost),
    }


results.main(FOLDER, collect, tables)
