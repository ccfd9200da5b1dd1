"""What is kept of the runs of study.sh, and the tables of RESULTS.md (../results.py). For study.sh:

    tables.py rows FILE   its rows, with the worked sum as `solution`
    tables.py best        the learning rate of each arm: the better with seed 6
"""
import json
import pathlib
import statistics
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
import results  # noqa: E402

HOME = pathlib.Path("runs/self_distillation")
NAMES = {"itself": "itself, told the worked sum", "grpo": "GRPO", "sft": "SFT, 32 sums a step",
         "sft_of_8": "SFT, 8 sums a step"}
VAL = ("val/accuracy", "val/level=1/accuracy", "val/level=2/accuracy", "val/level=3/accuracy",
       "val/reward_score")
T_4 = 2.776  # Student's t: 95 % of it, two-sided, with four degrees of freedom


def printed(path):
    """What eval has printed: a name and a number per line."""
    return {line.split()[0]: float(line.split()[1]) for line in path.open(encoding="utf-8")
            if line.startswith("val/")}


def seen(found):
    return {name.replace("val/", "").replace("/accuracy", ""): round(found[name], 4)
            for name in VAL}


def one_run(arm, rate, seed, path):
    rows = results.metrics(path)
    file = path / "val.txt"
    run = {"arm": arm, "rate": rate, "seed": int(seed),
           **seen(printed(file) if file.exists() else
                  {name: results.last(rows, name) for name in VAL})}
    steps = [r for r in rows if "actor/grad_norm" in r]
    run["loss"] = [round(r["train/loss"], 4) for r in steps if "train/loss" in r]
    run["kl"] = [round(r["distillation/reverse_kl"], 4) for r in steps
                 if "distillation/reverse_kl" in r]
    run["length"] = [round(r["response_length/mean"], 2) for r in steps
                     if "response_length/mean" in r]
    run["right"] = [round(r["reward/accuracy"], 4) for r in steps
                    if "reward/accuracy" in r]
    return run


def collect():
    runs = [one_run(*p.parts[-4:-1], p.parent) for p in sorted(HOME.glob("*/*/*/judged"))]
    runs.sort(key=lambda r: (list(NAMES).index(r["arm"]), float(r["rate"]), r["seed"]))
    return {"study": "self_distillation", "commit": results.commit(), "machine": results.machine(),
            "untaught": seen(printed(HOME / "untaught.txt"))}, runs


def chosen(runs):
    """{arm: learning rate}."""
    best = {}
    for r in runs:
        if r["seed"] == 6 and (r["arm"] not in best or r["accuracy"] > best[r["arm"]]["accuracy"]):
            best[r["arm"]] = r
    return {arm: r["rate"] for arm, r in best.items()}


def rows(path):
    for line in open(path, encoding="utf-8"):
        row = json.loads(line)
        row["solution"] = f"{row['prompt'].removeprefix('What is ').rstrip('?')} = {row['answer']}"
        print(json.dumps(row))


def tables(data):
    rates, found = chosen(data["runs"]), {}
    for r in data["runs"]:
        if r["seed"] <= 5 and r["rate"] == rates.get(r["arm"]):
            found.setdefault(r["arm"], []).append(r)
    levels, shown = ("accuracy", "level=1", "level=2", "level=3"), []
    for arm, runs in found.items():
        shown.append([NAMES[arm], rates[arm],
                      *(results.mean(r[key] for r in runs) for key in levels)])
    shown.append(["untaught", "", *(f"{data['untaught'][key]:.3f}" for key in levels)])
    tests, pairs = {}, []
    for arm, runs in found.items():
        tests[arm, "untaught"] = [r["accuracy"] - data["untaught"]["accuracy"] for r in runs]
        for other in list(found)[:list(found).index(arm)]:
            tests[other, NAMES[arm]] = [x["accuracy"] - y["accuracy"]
                                        for x, y in zip(found[other], runs)]
    corrected = results.holm({k: results.p_value(d) for k, d in tests.items()})
    for (arm, other), d in tests.items():
        width, middle = T_4 * statistics.stdev(d) / len(d) ** 0.5, statistics.mean(d)
        pairs.append([NAMES[arm], other, results.per_seed(d, "+", 3),
                      f"{middle - width:+.3f} to {middle + width:+.3f}",
                      results.p_text(corrected[arm, other])])
    grid = [[NAMES[r["arm"]], r["rate"], *(f"{r[key]:.3f}" for key in levels)]
            for r in data["runs"] if r["seed"] == 6]
    course = [[NAMES[arm], what, *(results.mean(statistics.mean(r[key][i:i + 3]) for r in runs)
                                   for i in (0, 3, 6, 9))]
              for arm, runs in found.items()
              for key, what in (("kl", "KL to the teacher"), ("loss", "loss"),
                                ("right", "answers right"), ("length", "tokens of an answer"))
              if runs[0][key]]
    return {
        "ends": results.table(["taught by", "learning rate", "greedy accuracy", "one digit",
                               "two digits", "three digits"], shown),
        "less": results.table(["taught by", "less", "seed by seed", "95 %", "p, corrected"], pairs),
        "course": results.table(["taught by", "mean of steps", "1 to 3", "4 to 6", "7 to 9",
                                 "10 to 12"], course),
        "rates": results.table(["seed 6", "learning rate", "greedy accuracy", "one digit",
                                "two digits", "three digits"], grid),
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["best"]:
        for best in chosen(collect()[1]).items():
            print(*best)
    elif sys.argv[1:2] == ["rows"]:
        rows(sys.argv[2])
    else:
        results.main(FOLDER, collect, tables)
