"""What is kept of the runs of study.sh, and the tables of RESULTS.md (../results.py)."""
import json
import pathlib
import statistics
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
import results  # noqa: E402

HOME = pathlib.Path("runs/vapor")
LAST = 20  # steps whose answers are counted
PARTS = 10  # of a run
METHODS = {
    "both_moving": "both, moving reference",
    "both_frozen": "both, frozen reference",
    "both_frozen_wide": "the same, `epsilon_high` 4",
    "span": "digit alone",
    "dpo": "pairs alone (DPO)",
    "grpo": "GRPO",
    "both_moving_wide": "both, moving, `epsilon_high` 4",
    "detached": "detached",
    "span_dpo": "digit and DPO, moving reference",
}
# What a method is meant to reach, by which its learning rate was chosen.
AIM = {"span": "right", "detached": "right", "grpo": "right", "dpo": "yes"}
KEPT = (
    "vapor/pref_margin",
    "vapor/pref_grad_coef_mean",
    "vapor/clip_frac_high",
    "vapor/clip_frac_low",
    "vapor/kl",
    "actor/entropy",
    "response_length/mean",
)


def counts(rows):
    """Answers; those with the right digit, with the word "yes", with both, and with all tags."""
    right = [f"<N>{r['ground_truth']}</N>" in r["response"] for r in rows]
    yes = ["<S>yes</S>" in r["response"] for r in rows]
    whole = ["</N>" in r["response"] and "</S>" in r["response"] for r in rows]
    joint = [a and b for a, b in zip(right, yes)]
    return [len(rows), sum(right), sum(yes), sum(joint), sum(whole)]


def one_run(path, kind, method, rate, seed):
    steps = [
        [json.loads(line) for line in f.open(encoding="utf-8")]
        for f in sorted(path.glob("rollouts/step_*.jsonl"))
    ]
    part = len(steps) // PARTS
    rows = results.metrics(path)
    sign = [r["vapor/pref_grad_coef_mean"] for r in rows if "vapor/pref_grad_coef_mean" in r]
    run = {"kind": kind, "method": method, "rate": rate, "seed": seed, "steps": len(steps)}
    run["last"] = counts(sum(steps[-LAST:], []))
    run["course"] = [
        counts(sum(steps[i * part : (i + 1) * part], []))[:3] for i in range(PARTS)
    ]
    if sign:
        quarter = len(sign) // 4
        sign = [sign[i * quarter : (i + 1) * quarter] for i in range(4)]
        run["coefficient"] = [statistics.mean(x) for x in sign]
        run["steps_that_unlearn"] = [sum(v < 0 for v in x) / len(x) for x in sign]
    run["metrics"] = {k: rows[-1][k] for k in KEPT if k in rows[-1]}
    return run


def collect():
    runs = []
    for done in sorted(HOME.glob("rates/*/*/*/DONE")):
        method, rate, seed = done.parts[-4:-1]
        runs.append(one_run(done.parent, "rates", method, rate, int(seed)))
    for done in sorted(HOME.glob("study/*/*/DONE"), key=lambda p: (p.parts[-3], int(p.parts[-2]))):
        method, seed = done.parts[-3:-1]
        rows = (done.parent / "config.yaml").read_text(encoding="utf-8").splitlines()
        optim = next(i for i, r in enumerate(rows) if r.strip() == "optim:")
        rate = next(r.split(":")[1].strip() for r in rows[optim:] if r.strip().startswith("lr:"))
        runs.append(one_run(done.parent, "study", method, rate, int(seed)))
    about = {"study": "VAPOR", "commit": results.commit(), "machine": results.machine()}
    return about, runs


def share(run, what):
    n, *found = run["last"]
    return found[("right", "yes", "joint", "whole").index(what)] / n


def rates_table(data):
    rows = []
    for method, title in METHODS.items():
        aim = AIM.get(method, "joint")
        found = {}
        for run in data["runs"]:
            if run["kind"] == "rates" and run["method"] == method:
                found.setdefault(run["rate"], []).append(share(run, aim))
        found = {r: v for r, v in found.items() if len(v) == 2}
        best = max(found, key=lambda r: statistics.mean(found[r]))
        cells = []
        for rate in ("1e-4", "3e-4", "1e-3", "3e-3", "1e-2"):
            text = " / ".join(f"{x:.3f}" for x in found.get(rate, []))
            cells.append(f"**{text}**" if rate == best else text)
        rows.append([title, {"joint": "digit and word", "right": "digit", "yes": "word"}[aim]] + cells)
    return results.table(["", "share of answers with the"] + ["1e-4", "3e-4", "1e-3", "3e-3", "1e-2"], rows)


def study(data):
    found = {}
    for method in METHODS:
        runs = [r for r in data["runs"] if r["kind"] == "study" and r["method"] == method]
        if runs:
            found[method] = runs
    seeds = set.intersection(*({r["seed"] for r in runs} for runs in found.values()))
    return {m: sorted((r for r in runs if r["seed"] in seeds), key=lambda r: r["seed"])
            for m, runs in found.items()}


def main_table(found):
    rows = []
    for method, runs in found.items():
        less = [share(a, "joint") - share(b, "joint") for a, b in zip(runs, found["both_moving"])]
        cells = [METHODS[method], f"{float(runs[0]['rate']):g}"]
        cells += [results.mean(share(r, w) for r in runs) for w in ("right", "yes", "joint")]
        cells += ["" if method == "both_moving" else results.mean(less, "+")]
        rows.append(cells + [results.mean(share(r, "whole") for r in runs)])
    return results.table(
        ["", "learning rate", "right digit", '"yes"', "both", "less the first row", "all tags"], rows
    )


def seeds_table(found):
    head = [""] + [f"seed {r['seed']}" for r in found["both_moving"]]
    return results.table(head, [
        [METHODS[m]] + [f"{share(r, 'right'):.2f} {share(r, 'yes'):.2f}" for r in runs]
        for m, runs in found.items()
    ])


def course_table(found):
    steps = found["both_moving"][0]["steps"]
    head = [""] + [f"{i * steps // PARTS + 1} to {(i + 1) * steps // PARTS}" for i in range(PARTS)]
    rows = []
    for m in ("both_moving", "both_frozen", "both_frozen_wide"):
        cells = [statistics.mean(r["course"][i][2] / r["course"][i][0] for r in found[m])
                 for i in range(PARTS)]
        rows.append([METHODS[m]] + [f"{x:.2f}" for x in cells])
    return results.table(head, rows)


def sign_table(found):
    steps = found["both_moving"][0]["steps"]
    head = [""] + [f"{i * steps // 4 + 1} to {(i + 1) * steps // 4}" for i in range(4)]
    rows = []
    for m in ("both_moving", "both_frozen", "both_frozen_wide"):
        def mean(key):
            return [statistics.mean(r[key][i] for r in found[m]) for i in range(4)]

        pairs = zip(mean("coefficient"), mean("steps_that_unlearn"))
        rows.append([METHODS[m]] + [f"{c:+.4f}, {s:.2f}" for c, s in pairs])
    return results.table(head, rows)


def tables(data):
    found = study(data)
    return {
        "rates": rates_table(data),
        "methods": main_table(found),
        "seeds": seeds_table(found),
        "course": course_table(found),
        "sign": sign_table(found),
    }


results.main(FOLDER, collect, tables)
