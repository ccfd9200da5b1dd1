"""What is kept of the runs of study.sh, and the tables of RESULTS.md (../results.py). For study.sh:

    tables.py best                        the learning rate of each arm: the best with seeds 6 to 8
    tables.py answers QUESTIONS SAMPLES   rows of the teacher's whole answers
"""
import json
import pathlib
import statistics
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
import results  # noqa: E402

HOME = pathlib.Path("runs/distillation_study")
NAMES = {"jsd_0": "forward KL (beta 0)", "jsd_0.5": "beta 0.5", "jsd_1": "reverse KL (beta 1)",
         "advantage": "advantage", "sft": "SFT on the teacher's answers", "none": "untaught"}
T_4 = 2.776  # Student's t: 95 % of it, two-sided, with four degrees of freedom


def one_run(arm, rate, seed, path):
    own, teachers = (results.metrics(path / name)[0] for name in ("own", "teachers"))
    return {"arm": arm, "rate": rate, "seed": seed,
            "own": round(own["distillation/reverse_kl"], 4),
            "teachers": round(teachers["distillation/forward_kl"], 4),
            "agrees": round(own["distillation/argmax_agreement"], 4),
            "tokens": own["distillation/tokens"],
            "entropy": round(own["actor/entropy"], 4)}


def collect():
    runs = [one_run(*p.parts[-5:-3], int(p.parts[-3]), p.parent.parent)
            for p in sorted(HOME.glob("*/*/*/teachers/DONE"))]
    runs.sort(key=lambda r: (list(NAMES).index(r["arm"]), float(r["rate"]), r["seed"]))
    return {"study": "distillation", "commit": results.commit(), "machine": results.machine()}, runs


def worse(run):
    """What the learning rate is chosen by: both distances from the teacher together."""
    return run["own"] + run["teachers"]


def by_rate(runs):
    """{(arm, learning rate): runs of the seeds that only choose}."""
    found = {}
    for r in runs:
        if r["seed"] > 5:
            found.setdefault((r["arm"], r["rate"]), []).append(r)
    return found


def chosen(runs):
    """{arm: learning rate}."""
    best = {}
    for (arm, rate), of in by_rate(runs).items():
        mean = statistics.mean(map(worse, of))
        if arm not in best or mean < best[arm][0]:
            best[arm] = mean, rate
    return {arm: rate for arm, (_, rate) in best.items()}


def tables(data):
    rates, ends, found = chosen(data["runs"]), [], {}
    for r in data["runs"]:
        if r["seed"] <= 5 and r["rate"] == rates.get(r["arm"], "0"):
            found.setdefault(r["arm"], []).append(r)
    for arm, runs in found.items():
        ends.append([NAMES[arm], rates.get(arm, "0"),
                     *(results.mean(r[key] for r in runs) if len(runs) > 1 else f"{runs[0][key]:.3f}"
                       for key in ("own", "teachers", "agrees", "entropy"))])
    pairs = []
    tests = {}
    for arm in found:
        if arm in ("sft", "none"):
            continue
        for key in ("own", "teachers"):
            tests[arm, key] = [x[key] - y[key] for x, y in zip(found[arm], found["sft"])]
    corrected = results.holm({k: results.p_value(d) for k, d in tests.items()})
    for (arm, key), d in tests.items():
        width, middle = T_4 * statistics.stdev(d) / len(d) ** 0.5, statistics.mean(d)
        pairs.append([NAMES[arm], f"on {'its own' if key == 'own' else 'the teacher' + chr(39) + 's'}",
                      results.per_seed(d, "+", 3), f"{middle - width:+.3f} to {middle + width:+.3f}",
                      results.p_text(corrected[arm, key])])
    grid = [[NAMES[arm], rate, *(results.mean(r[key] for r in of) for key in ("own", "teachers"))]
            for (arm, rate), of in by_rate(data["runs"]).items()]
    return {
        "ends": results.table(["taught by", "learning rate", "reverse KL, its own answers",
                               "forward KL, the teacher's answers", "likeliest tokens agree",
                               "entropy"], ends),
        "less": results.table(["less SFT", "answers", "seed by seed", "95 %", "p, corrected"],
                              pairs),
        "rates": results.table(["seeds 6 to 8", "learning rate", "reverse KL, its own answers",
                                "forward KL, the teacher's answers"], grid),
    }


def answers(questions, samples):
    for q, s in zip(open(questions, encoding="utf-8"), open(samples, encoding="utf-8")):
        for x in json.loads(s)["samples"]:
            if x["finish_reason"] == "stop":
                print(json.dumps({"prompt": json.loads(q)["prompt"], "answer": "-",
                                  "response": x["text"]}))


if sys.argv[1:2] == ["best"]:
    for best in chosen(collect()[1]).items():
        print(*best)
elif sys.argv[1:2] == ["answers"]:
    answers(*sys.argv[2:4])
else:
    results.main(FOLDER, collect, tables)
