"""Runs both sides of the measures P1 to P18 in turn, prints their JSON lines and the ratios,
appends them to benchmarks/results.

    python benchmarks/compare.py [P1 ... P18] [--rounds 2] [--build build] [--prefix "chrt -f 1"]
                                 [--llama PYTHON] [--results DIR] [--readme]

benchmarks/run.sh builds the programs first. A round runs our side, then each form of the peer; the
next round does so again, so that a busy neighbour meets both. `ratio` compares the best of all
runs, `ratio_median` their medians; above 1 is in our favour. Both sides use the same weights'
shapes, tokens, dtype and number of threads.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parent
SMOL = REPO / "models/SmolLM2-135M-Instruct"
# Products of a forward pass of SmolLM2-135M: how often each shape N x K comes.
SMOL_PRODUCTS = {(576, 576): 60, (192, 576): 60, (1536, 576): 60, (576, 1536): 30, (49152, 576): 1}


class Run:
    def __init__(self, args):
        self.args, self.out = args, None

    def write(self, line):
        text = json.dumps(line)
        print(text, flush=True)
        with open(self.out, "a") as f:
            f.write(text + "\n")

    def command(self, words, note):
        """Runs one side; its JSON lines, each written down with the note."""
        words = shlex.split(self.args.prefix) + [str(w) for w in words]
        done = subprocess.run(
            words, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        lines = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
        if done.returncode or not lines:
            raise SystemExit(
                "benchmarks: %s: exit code %d\n%s"
                % (" ".join(words), done.returncode, done.stderr[-2000:])
            )
        for x in lines:
            x.update({k: v.replace("%s/" % REPO, "") for k, v in x.items() if isinstance(v, str)})
            x.update(note)
            self.write(x)
        return lines

    def ares(self, program, *words, **note):
        return self.command([pathlib.Path(self.args.build) / program, *words], note)

    def quiet(self, program, *words):
        """Runs a program of ours that measures nothing."""
        words = [pathlib.Path(self.args.build).resolve() / program, *words]
        subprocess.run([str(w) for w in words], check=True, stdout=subprocess.DEVNULL)

    def peer(self, script, *words, **note):
        return self.command(
            [sys.executable, HERE / "peers" / script, "--threads", self.args.threads, *words],
            {**note, "script": script},
        )

    def ratio(self, id, case, ares, peer, at_least, goal, unit, rate):
        """ares and peer: the values of every run of every round."""
        best = max if rate else min
        over = (lambda a, p: a / p) if rate else (lambda a, p: p / a)
        a, p = best(ares), best(peer)
        am, pm = statistics.median(ares), statistics.median(peer)
        self.write(
            {
                "id": id,
                "case": case,
                "ares": sig(a),
                "peer": sig(p),
                "unit": unit,
                "ratio": sig(over(a, p), 3),
                "ratio_median": sig(over(am, pm), 3),
                "ares_median": sig(am),
                "peer_median": sig(pm),
                "at_least": at_least,
                "goal": goal,
            }
        )

    def limit(self, id):
        """GFLOP/s of a loop of multiply-adds on every thread, at this moment."""
        return max(
            x["value"] for x in self.ares("bench_limit", "threads=%d" % self.args.threads, id=id)
        )

    def share(self, id, case, gflops, limit):
        """What a phase of ours computes per second, at best, beside the limit."""
        self.write(
            {
                "id": id,
                "case": case,
                "gflops": sig(max(gflops)),
                "limit_gflops": sig(max(limit)),
                "share_of_limit": sig(max(gflops) / max(limit), 3),
            }
        )


def sig(x, digits=4):
    return float("%.*g" % (digits, x))


def values(lines):
    return [v for x in lines for v in x["all"]]


def grpo(r, id, case, ours, theirs, forms, goals, repeat, peer="TRL", beside=None):
    """One step of both sides; the peer plain and with kept pages. beside: (its name, words) of
    another step of ours in the same rounds. Gives TRL's start, and the peak memory of our side and
    of each that it is compared with."""
    a, b, p, limit = [], [], {f: [] for f in forms}, []

    def step(words):
        return r.ares(
            "bench_step",
            "grpo",
            "repeat=%d" % max(2, repeat),
            "threads=%d" % r.args.threads,
            *words,
            id=id,
            case=case
        )

    for _ in range(r.args.rounds):
        limit.append(r.limit(id))
        a += step(ours)
        b += step(beside[1]) if beside else []
        for form in forms:
            p[form] += r.peer(
                "grpo.py",
                "--repeat",
                repeat,
                *theirs,
                *(["--kept"] if form == "kept" else []),
                id=id,
                case=case
            )
    for phase in ("generate", "update"):
        r.share(
            id, "%s, %s" % (case, phase), [x[phase + "_gflop"] / x[phase + "_s"] for x in a], limit
        )
    r.first_step[id] = min(x["first_step_s"] for f in forms for x in p[f])
    peak = lambda lines: max(x["peak_gib"] for x in lines)
    peaks = {}
    for form in forms:
        name = case + ", " + peer + (" kept" if form == "kept" else "")
        r.ratio(id, name, values(a), values(p[form]), *goals[form], "s/step", False)
        peaks[name] = peak(a), peak(p[form])
    if beside:
        name = case + ", " + beside[0]
        r.ratio(id, name, values(a), values(b), None, None, "s/step", False)
        peaks[name] = peak(a), peak(b)
    return peaks


def memory(r, id, of, peaks, at_least, goal):
    """A line for each of grpo's peaks."""
    for case, (ares, peer) in peaks.items():
        r.write(
            {
                "id": id,
                "case": of + case,
                "ares": ares,
                "peer": peer,
                "unit": "GiB",
                "ratio": sig(peer / ares, 3),
                "at_least": at_least,
                "goal": goal,
            }
        )


def p1(r):
    grpo(
        r,
        "P1",
        "tiny, beta 0",
        ["model=tiny"],
        ["--model", "tiny"],
        ["plain", "kept"],
        {"plain": (5, 8), "kept": (5, 8)},
        5,
    )


def smol_step(beta):
    """Words of P2 and P17: ours, and the peer's."""
    sizes = {"prompts": 4, "samples": 8, "prompt": 47, "new": 32}
    named = {"prompt": "prompt-tokens", "new": "new-tokens"}
    ours, theirs = ["model=%s" % SMOL, "beta=" + beta], ["--model", "smol", "--beta", beta]
    for name, size in sizes.items():
        ours.append("%s=%d" % (name, size))
        theirs += ["--" + named.get(name, name), size]
    return ours, theirs


def p2(r):
    goals = {"plain": (4.5, 9), "kept": (3, 6)}
    for beta in r.args.betas:
        peaks = grpo(r, "P2", "Smol, beta " + beta, *smol_step(beta), r.args.forms, goals, 1)
        memory(r, "P9", "peak memory of P2, ", peaks, 2, 4)


def p17(r):
    goals = {"plain": (4, 8), "kept": (3.5, 6)}
    for beta in r.args.betas:
        ours, theirs = smol_step(beta)
        peaks = grpo(
            r,
            "P17",
            "Smol, rank 16, beta " + beta,
            [*ours, "lora=16"],
            [*theirs, "--lora", 16],
            r.args.forms,
            goals,
            1,
            "TRL with PEFT",
            ("all weights here", ours)
        )
        beside = {k: v for k, v in peaks.items() if k.endswith("here")}
        memory(r, "P17", "peak memory, ", {k: peaks[k] for k in peaks if k not in beside}, 3, 4)
        memory(r, "P17", "peak memory, ", beside, None, None)


def decode(r, id, model, peer_model, goals, new, repeat):
    a, p = {}, {}
    for _ in range(r.args.rounds):
        for batch in goals:
            a.setdefault(batch, []).extend(
                r.ares(
                    "bench_step",
                    "decode",
                    "model=%s" % model,
                    "batch=%d" % batch,
                    "new=%d" % new,
                    "threads=%d" % r.args.threads,
                    "repeat=%d" % max(3, repeat),
                    id=id,
                )
            )
        for x in r.peer(
            "decode.py",
            "--model",
            peer_model,
            "--batch",
            *goals,
            "--new",
            new,
            "--repeat",
            repeat,
            "--kept",
            id=id
        ):
            p.setdefault(x["batch"], []).append(x)
    for batch, goal in goals.items():
        r.ratio(id, "B=%d" % batch, values(a[batch]), values(p[batch]), *goal, "tokens/s", True)


def p3(r):
    decode(r, "P3", "tiny", "tiny", {1: (5, 12), 16: (None, None), 64: (4, 10)}, 64, 5)


def p4(r):
    decode(r, "P4", SMOL, "smol", {1: (1.8, 2.5), 16: (2.5, 5), 64: (3, 4.5)}, 32, 2)


def p5(r):
    f, b = [], []
    for _ in range(r.args.rounds + 1):
        f += r.ares(
            "bench_step",
            "decode",
            "model=%s" % SMOL,
            "batch=1",
            "threads=%d" % r.args.threads,
            id="P5",
        )
        b += r.ares(
            "bench_step",
            "decode",
            "model=%s" % SMOL,
            "batch=1",
            "dtype=bf16",
            "threads=%d" % r.args.threads,
            id="P5",
        )
    r.ratio(
        "P5", "Smol, B=1: bf16 against our fp32", values(b), values(f), 1.7, 1.9, "tokens/s", True
    )


def p6(r):
    for case, model, peer_model, rows, tokens, repeat, goal in (
        ("tiny", "tiny", "tiny", 128, 96, 5, (2.2, 3.2)),
        ("Smol", SMOL, "smol", 32, 79, 1, (1.7, 2.3)),
    ):
        a, p, limit = [], [], []
        for _ in range(r.args.rounds):
            limit.append(r.limit("P6"))
            a += r.ares(
                "bench_step",
                "update",
                "model=%s" % model,
                "rows=%d" % rows,
                "tokens=%d" % tokens,
                "threads=%d" % r.args.threads,
                "repeat=%d" % max(2, repeat),
                id="P6",
            )
            p += r.peer(
                "update.py",
                "--model",
                peer_model,
                "--rows",
                rows,
                "--tokens",
                tokens,
                "--repeat",
                repeat,
                "--kept",
                id="P6",
            )
        r.share(
            "P6", case + ", update", [v * x["gflop_per_token"] for x in a for v in x["all"]], limit
        )
        r.ratio("P6", case, values(a), values(p), *goal, "tokens/s", True)


def slow_mkl():
    """MKL takes its AVX2 path on processors that are not its maker's: half of what they can do where
    AVX-512 has its full width (AMD from family 26 on: Zen 5), and no loss where it has not (Zen 4).
    """
    cpu = cpu_model()
    return cpu["vendor"] == "AuthenticAMD" and int(cpu["family"]) >= 26


# What a run executes of the head: the measure of bench_head, the peer's option, what it is called,
# (at least, goal) where MKL is slow, and elsewhere. Elsewhere both sides' products have about the
# same speed, so the passes over the logits are all there is to win: the goals are our products (one,
# three, four) at four fifths of the fp32 limit.
HEAD = (
    ("head", [], "log-prob and entropy", (2, 3), (1.3, 1.6)),
    ("head_fused", ["--backward"], "the same with its backward, fused", (2, 3), (1.2, 1.5)),
    ("head, head_backward", ["--backward"], "the same in two passes", (1.5, 2.5), (1, 1.2)),
)


def p7(r):
    ares, peer, limit = [], {}, []
    for _ in range(r.args.rounds):
        limit.append(r.limit("P7"))
        ares += r.ares("bench_head", r.args.threads, "run", id="P7")
        for case in ("smol", "qwen"):
            for option in ([], ["--backward"]):
                for kept in ([], ["--kept"]):
                    key = (case, *option, *kept)
                    peer[key] = peer.get(key, []) + r.peer(
                        "head.py", "--case", case, *option, *kept, id="P7"
                    )
    for measure, option, name, *goals in HEAD:
        for case in ("smol", "qwen"):
            ours = [x for x in ares if x["measure"] == measure and x["case"] == case]
            r.share("P7", "%s, %s" % (case, name), [x["gflops"] for x in ours], limit)
            for kept in ([], ["--kept"]):
                r.ratio(
                    "P7",
                    "%s, %s, eager%s" % (case, name, ", kept" if kept else ""),
                    values(ours),
                    values(peer[(case, *option, *kept)]),
                    *goals[0 if slow_mkl() else 1],
                    "us/token",
                    False,
                )


def p8(r):
    best, median = {}, {}
    for _ in range(r.args.rounds):
        for m in (16, 64, 1024):
            for x in r.ares(
                "bench_linear",
                "--only",
                "smol",
                "--op",
                "forward",
                "--m",
                m,
                "--threads",
                r.args.threads,
                "--seconds",
                0.15,
                id="P8",
            ):
                best.setdefault(("ares", m, x["n"], x["k"]), []).append(x["best_us"])
                median.setdefault(("ares", m, x["n"], x["k"]), []).append(x["median_us"])
        for x in r.peer("mm.py", "--seconds", 0.15, id="P8"):
            best.setdefault(("peer", x["m"], x["n"], x["k"]), []).append(x["best_us"])
            median.setdefault(("peer", x["m"], x["n"], x["k"]), []).append(x["median_us"])
    goal = (1.8, 2.3) if slow_mkl() else (1, 2.3)
    for m in (16, 64, 1024):
        total = {
            s: [
                sum(t * min(best[s, m, n, k]) for (n, k), t in SMOL_PRODUCTS.items()),
                sum(
                    t * statistics.median(median[s, m, n, k]) for (n, k), t in SMOL_PRODUCTS.items()
                ),
            ]
            for s in ("ares", "peer")
        }
        worst = min(
            (min(best["peer", m, n, k]) / min(best["ares", m, n, k]), n, k)
            for n, k in SMOL_PRODUCTS
        )
        line = {
            "id": "P8",
            "case": "all products of Smol, M=%d" % m,
            "ares": sig(total["ares"][0]),
            "peer": sig(total["peer"][0]),
            "unit": "us",
            "ratio": sig(total["peer"][0] / total["ares"][0], 3),
            "ratio_median": sig(total["peer"][1] / total["ares"][1], 3),
            "ares_median": sig(total["ares"][1]),
            "peer_median": sig(total["peer"][1]),
            "at_least": goal[0],
            "goal": goal[1],
            "worst_shape": "%dx%d" % worst[1:],
            "worst_ratio": sig(worst[0], 3),
        }
        r.write(line)


def p9(r):
    with tempfile.TemporaryDirectory() as d:
        d = pathlib.Path(d)
        program = pathlib.Path(r.args.build).resolve() / "ares-train"
        r.quiet("ares-train", "init", "--arch", "qwen2", "--out", d / "model", "--seed", 1)
        with open(d / "train.jsonl", "w") as f:
            for i in range(64):
                f.write(
                    json.dumps({"prompt": "%03d plus %03d is" % (i, 3 * i), "answer": str(4 * i)})
                    + "\n"
                )
        (d / "config.yaml").write_text(
            "data: {train_files: %s/train.jsonl, max_prompt_length: 48, max_response_length: 64, "
            "rollout_batch_size: 16}\n"
            "algorithm: {adv_estimator: grpo, disable_kl: true}\n"
            "worker:\n"
            "  actor: {model: {model_path: %s/model}, global_batch_size: 16, optim: {lr: 1.0e-6}}\n"
            "  rollout: {n: 8, temperature: 1.0}\n"
            "  reward: {rewards: [{name: number, weight: 0.9}, {name: format, weight: 0.1}]}\n"
            "trainer: {project_name: bench, experiment_name: start, max_steps: 1, val_freq: -1, "
            "save_freq: -1}\n"
            % (d, d)
        )
        times = []
        for i in range(max(3, 2 * r.args.rounds)):
            run = d / ("run%d" % i)
            words = shlex.split(r.args.prefix) + [
                str(program),
                "--config",
                str(d / "config.yaml"),
                "trainer.run_dir=%s" % run,
            ]
            begin = time.perf_counter()
            p = subprocess.Popen(
                words, cwd=d, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            log = run / "metrics.jsonl"
            while p.poll() is None and not (log.exists() and '"actor/' in log.read_text()):
                time.sleep(0.001)
            times.append(time.perf_counter() - begin)
            error = p.communicate()[1]
            if p.returncode:
                raise SystemExit("benchmarks: P9: %s\n%s" % (" ".join(words), error))
            r.write(
                {
                    "id": "P9",
                    "measure": "start to the first step's line in metrics.jsonl",
                    "side": "ares",
                    "value": sig(times[-1]),
                    "unit": "s",
                }
            )
        line = {
            "id": "P9",
            "case": "start to first optimizer step, tiny",
            "ares": sig(min(times)),
            "ares_median": sig(statistics.median(times)),
            "unit": "s",
            "at_least": "1 s",
            "goal": "0.4 s",
        }
        if "P1" in r.first_step:
            line.update(peer=r.first_step["P1"], ratio=sig(r.first_step["P1"] / min(times), 3))
        r.write(line)


# Suite of benchmarks/verifiers.c: the forms of the peer, each with the verifiers of ours that it is
# compared with. VERIFIER_GOAL: the ratios to reach.
VERIFIERS = {
    "gsm8k": {"math-verify": ("math_verify", "math"), "sympy": ("math",)},
    "math": {"math-verify": ("math_verify", "math"), "sympy": ("math",)},
}
VERIFIER_GOAL = (200, 500)


def p10(r):
    with tempfile.TemporaryDirectory() as d:
        for suite, forms in VERIFIERS.items():
            rows = pathlib.Path(d) / (suite + ".jsonl")
            with open(rows, "w") as f:
                subprocess.run(
                    [pathlib.Path(r.args.build) / "bench_verifiers", "--suite", suite, "--dump"],
                    check=True,
                    stdout=f,
                )
            a, p = {}, {}
            for _ in range(r.args.rounds):
                for x in r.ares("bench_verifiers", "--suite", suite, "--rows", rows, id="P10"):
                    a.setdefault(x["verifier"], []).append(x)
                for form in forms:
                    p.setdefault(form, []).extend(
                        r.peer(
                            "verifiers.py",
                            "--suite",
                            suite,
                            "--rows",
                            rows,
                            "--form",
                            form,
                            id="P10",
                        )
                    )
            for form, verifiers in forms.items():
                for verifier in verifiers:
                    r.ratio(
                        "P10",
                        "%s-like, %s, against %s" % (suite, verifier, form),
                        values(a[verifier]),
                        values(p[form]),
                        *VERIFIER_GOAL,
                        "answers/s",
                        True
                    )


# Measures of benchmarks/algo.c: the forms of the peer in peers/algo.py, each with the ratios to
# reach.
ALGORITHMS = {
    "loss": ("PPO, KL and entropy terms on 1 M tokens", {"loss": (5, 10)}),
    "windows": ("window entropy of 1 M tokens", {"windows": (500, 1000)}),
    "thresholds": (
        "window entropy of 1 M tokens and its percentiles",
        {"thresholds": (100, 200), "thresholds_torch": (5, 10)},
    ),
    "gae": ("gae, [1024, 4096]", {"gae": (5, 10)}),
}


def p11(r):
    for measure, (case, forms) in ALGORITHMS.items():
        a, p = [], {f: [] for f in forms}
        for _ in range(r.args.rounds):
            a += r.ares("bench_algo", measure, "threads=%d" % r.args.threads, id="P11")
            for form in forms:
                p[form] += r.peer("algo.py", form, "--repeat", 3, id="P11")
        for form, goal in forms.items():
            r.ratio(
                "P11",
                "%s, against %s" % (case, p[form][0]["peer"]),
                values(a),
                values(p[form]),
                *goal,
                "ms",
                False
            )


# Model, groups x environments of each, at least and goal. All environments of the larger model
# would take its peer a quarter of an hour.
AGENTS = (("tiny", 8, 16, 6, 9), ("Smol", 1, 16, 4, 6))


def p12(r):
    with tempfile.TemporaryDirectory() as d:
        tiny = pathlib.Path(d) / "tiny"
        r.quiet("ares-train", "init", "--arch", "qwen2", "--max-position", 4096, "--out", tiny)
        for name, groups, size, at_least, goal in AGENTS:
            model = tiny if name == "tiny" else SMOL
            ares, peer = [], []
            for _ in range(r.args.rounds):
                ares += r.ares(
                    "bench_agents",
                    "turns",
                    "model=%s" % model,
                    "groups=%d" % groups,
                    "size=%d" % size,
                    "threads=%d" % r.args.threads,
                    "repeat=%d" % (2 if name == "tiny" else 1),
                    id="P12",
                    case=name
                )
                peer += r.peer(
                    "agents.py",
                    "turns",
                    "--model",
                    model,
                    "--environments",
                    groups * size,
                    "--repeat",
                    1,
                    "--kept",
                    id="P12",
                    case=name
                )
            case = "%s, %d environments x 5 turns" % (name, groups * size)
            r.ratio(
                "P12", case + ", kept", values(ares), values(peer), at_least, goal, "turns/s", True
            )
            r.write(
                {
                    "id": "P12",
                    "case": "%s, prefilled tokens per new one, after the first turns" % name,
                    "ares": max(x["prefill_per_new"] for x in ares),
                    "unit": "tokens",
                    "at_least": "1.1 tokens",
                    "goal": "1.05 tokens",
                }
            )


# Our tag, the peer's form of it, what that is called.
ENVIRONMENTS = (
    ("FrozenLake", "lake", "gymnasium, the class"),
    ("FrozenLake", "lake-made", "gymnasium.make"),
    ("SimpleSokoban", "sokoban-tiny", "gym-sokoban, smallest picture"),
    ("SimpleSokoban", "sokoban", "gym-sokoban"),
)


def p13(r):
    ares, peer = {}, {}
    for _ in range(r.args.rounds):
        for tag in dict.fromkeys(tag for tag, _, _ in ENVIRONMENTS):
            ares[tag] = ares.get(tag, []) + r.ares("bench_agents", "steps", "tag=%s" % tag, id="P13")
        for _, form, _ in ENVIRONMENTS:
            peer[form] = peer.get(form, []) + r.peer(
                "agents.py", "steps", "--environment", form, id="P13"
            )
    for measure, at_least, goal in (("steps", 200, 400), ("resets", None, None)):
        for tag, form, name in ENVIRONMENTS:
            pick = lambda lines: values(x for x in lines if x["measure"] == measure)
            r.ratio(
                "P13",
                "%s of %s, against %s" % (measure, tag, name),
                pick(ares[tag]),
                pick(peer[form]),
                at_least,
                goal,
                measure + "/s",
                True
            )


# (at least, goal): from a file, where both sides decode with the same libraries; from pixels, to
# what either side's preprocessing ends with; and from pixels to transformers' array of values on
# both sides, which we do not make otherwise (bench_vision counts the making of values).
PICTURES = {
    "JPEG 640 x 480, from its file": (1.5, 10),
    "JPEG 640 x 480, from its pixels": (10, 15),
    "JPEG 640 x 480, from its pixels to values": (3, 10),
    "PNG 1024 x 1024, from its file": (1.2, 10),
    "PNG 1024 x 1024, from its pixels": (10, 15),
    "PNG 1024 x 1024, from its pixels to values": (2, 10),
}


def p14(r):
    with tempfile.TemporaryDirectory() as d:
        a, p = {}, {}
        for _ in range(r.args.rounds):
            for x in r.ares("bench_media", d, 30, id="P14"):
                a.setdefault(x["case"], []).append(x)
            words = [sys.executable, HERE / "peers/media.py", d, "--threads", 1, "--repeat", 30]
            for x in r.command(words, {"id": "P14", "script": "media.py"}):
                p.setdefault(x["case"], []).append(x)
        for case, goals in PICTURES.items():
            peer = p[case.replace(" to values", "")]
            r.ratio("P14", case, values(a[case]), values(peer), *goals, "pictures/s", True)


# What the models of P15 are made with, and how often the peer takes a timed step.
SEEING = {
    "tiny": (["--vision-layers", 4, "--vision-width", 128], 3),
    "64M": (
        ["--hidden", 512, "--layers", 8, "--heads", 8, "--intermediate", 2048]
        + ["--vision-layers", 8, "--vision-width", 512, "--vision-heads", 8],
        1,
    ),
}
SEEING_SIZES = {"prompts": 8, "samples": 8, "new": 32, "pixels": 224 * 224}


def make_seeing(r, folder, options):
    """A vision model's directory, whose processor enlarges pictures to 64 tokens."""
    r.quiet("ares-train", "init", "--arch", "qwen2_5_vl", "--seed", 1, "--out", folder, *options)
    path = folder / "preprocessor_config.json"
    processor = json.loads(path.read_text())
    processor["min_pixels"] = SEEING_SIZES["pixels"]
    path.write_text(json.dumps(processor))


def train_seeing(r, model, rows, run, steps, frozen, note):
    """A run of the program; a line with the times of its steps, the first left out."""
    s = SEEING_SIZES
    words = shlex.split(r.args.prefix) + [
        str(pathlib.Path(r.args.build).resolve() / "ares-train"),
        "data.train_files=%s" % rows,
        "data.prompt_key=problem",
        "data.min_pixels=null",
        "data.max_pixels=null",
        "data.max_prompt_length=256",
        "data.max_response_length=%d" % s["new"],
        "data.rollout_batch_size=%d" % s["prompts"],
        "worker.actor.global_batch_size=%d" % s["prompts"],
        "worker.actor.model.model_path=%s" % model,
        "worker.actor.model.freeze_vision_tower=%s" % ("true" if frozen else "false"),
        "worker.actor.optim.lr=1e-6",
        "worker.rollout.n=%d" % s["samples"],
        "worker.rollout.ignore_eos=true",
        "worker.reward.rewards=[{name: format, pattern: '.*[0-9a-m].*', finished: false}]",
        "algorithm.adv_estimator=grpo",
        "algorithm.disable_kl=true",
        "trainer.val_freq=-1",
        "trainer.save_freq=-1",
        "trainer.threads=%d" % r.args.threads,
        "trainer.max_steps=%d" % steps,
        "trainer.run_dir=%s" % run,
    ]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    times = [x["timing_s/step"] for x in lines[1:]]
    best = min(lines[1:], key=lambda x: x["timing_s/step"])
    line = {
        "measure": "grpo_step",
        "side": "ares",
        "value": sig(min(times)),
        "unit": "s",
        "all": [sig(t) for t in times],
        "prompt_tokens": statistics.mean(x["prompt_length/mean"] for x in lines),
        "image_tokens": best["data/image_tokens"],
        "generate_s": sig(best["timing_s/gen"]),
        "update_s": sig(best["timing_s/update_actor"]),
        "vision_s": sig(best["timing_s/vision"]),
        "peak_gib": sig(max(x["perf/cpu_memory_used_gb"] for x in lines)),
        **note,
    }
    r.write(line)
    return line


def p15(r):
    with tempfile.TemporaryDirectory() as d:
        d, s = pathlib.Path(d), SEEING_SIZES
        subprocess.run([sys.executable, REPO / "scripts/data/pictures.py", d], check=True)
        for model, (options, repeat) in SEEING.items():
            make_seeing(r, d / model, options)
            rows, steps = d / (model + ".jsonl"), repeat + 1
            every = (d / "pictures_train.jsonl").read_text().splitlines(True)
            rows.write_text("".join(every[: s["prompts"] * steps]))
            for tower in ("frozen", "trained"):
                case, a, p = "%s, tower %s" % (model, tower), [], {f: [] for f in r.args.forms}
                for i in range(r.args.rounds):
                    note = {"id": "P15", "case": case}
                    run = d / ("%s %s %d" % (model, tower, i))
                    r.limit("P15")
                    a.append(train_seeing(r, d / model, rows, run, steps, tower == "frozen", note))
                    for form in r.args.forms:
                        p[form] += r.peer(
                            "grpo.py",
                            *["--model", d / model, "--pictures", rows, "--repeat", repeat],
                            *["--prompts", s["prompts"], "--samples", s["samples"]],
                            *["--new-tokens", s["new"]],
                            *(["--freeze"] if tower == "frozen" else []),
                            *(["--kept"] if form == "kept" else []),
                            **note
                        )
                tokens = {sig(x["prompt_tokens"]) for x in sum(p.values(), a)}
                if len(tokens) != 1:
                    raise SystemExit("benchmarks: P15: prompts of %s tokens" % sorted(tokens))
                for form in r.args.forms:
                    name = case + ", TRL" + (" kept" if form == "kept" else "")
                    r.ratio("P15", name, values(a), values(p[form]), 5, 8, "s/step", False)


def p16(r):
    goal = (2, 3) if slow_mkl() else (1, 2)
    for family in ("2", "2.5"):
        for side in (32, 64):
            size, a, p = ["family=" + family, "side=%d" % side, "depth=2"], [], []
            for _ in range(r.args.rounds):
                limit = r.limit("P16")
                a += r.ares("bench_vision", *size, "threads=%d" % r.args.threads, id="P16")
                p += r.peer(
                    "vision.py",
                    *["--family", family, "--side", side, "--depth", 2, "--kept"],
                    id="P16",
                )
                limit = max(limit, r.limit("P16"))
            for measure, what in (("vision", "features"), ("vision, backward", "and back")):
                case = "Qwen%s-VL, %d patches, %s, kept" % (family, side**2, what)
                of = lambda lines: [x for x in lines if x["measure"] == measure]
                r.ratio("P16", case, values(of(a)), values(of(p)), *goal, "patches/s", True)
                r.share("P16", case, [x["gflops"] for x in of(a)], [limit])


def p18(r):
    """The endpoint: tokens per second beside generate and llama.cpp's server, then ten minutes of load."""
    build, name = ["--build", r.args.build], "endpoint, 32 streams of 64 tokens, "
    words = [sys.executable, HERE / "serve.py", "--model", SMOL, *build, "--rounds", r.args.rounds]
    peer = None
    if r.args.llama:
        gguf = pathlib.Path(tempfile.mkdtemp()) / "model.gguf"
        r.quiet("ares-train", "export", "--model", SMOL, "--gguf", gguf)
        peer = subprocess.Popen(
            shlex.split(r.args.prefix)
            + [r.args.llama, HERE / "peers/llama_server.py", gguf, "--threads", str(r.args.threads)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        words += ["--peer", peer.stdout.readline().strip() + "/v1"]
    sides = {x["side"]: x.get("all") for x in r.command(words, {"id": "P18"})}
    if peer:
        peer.terminate()
        peer.wait()
        shutil.rmtree(gguf.parent)
        r.ratio("P18", name + "against llama.cpp's server", sides["ares"], sides["peer"], None,
                None, "tokens/s", True)  # fmt: skip
    r.ratio("P18", name + "against generate, its start included", sides["ares"], sides["generate"],
            0.9, 1, "tokens/s", True)  # fmt: skip
    prefix, r.args.prefix = r.args.prefix, ""  # ten minutes: others are not kept off for so long
    r.command([sys.executable, HERE / "serve_load.py", "--model", SMOL, *build], {"id": "P18"})
    r.args.prefix = prefix


MEASURES = {
    "P1": p1,
    "P2": p2,
    "P3": p3,
    "P4": p4,
    "P5": p5,
    "P6": p6,
    "P7": p7,
    "P8": p8,
    "P9": p9,
    "P10": p10,
    "P11": p11,
    "P12": p12,
    "P13": p13,
    "P14": p14,
    "P15": p15,
    "P16": p16,
    "P17": p17,
    "P18": p18,
}
WHAT = {
    "P1": "GRPO step, tiny, 16 x 8, 32 + 64 tokens, against TRL",
    "P2": "GRPO step, SmolLM2-135M fp32, 4 x 8, 47 + 32 tokens, against TRL",
    "P3": "decode tiny, against lean PyTorch with a static cache",
    "P4": "decode SmolLM2-135M fp32, against the same",
    "P5": "decode with bf16 storage",
    "P6": "update, against PyTorch with kept pages",
    "P7": "the head as a run executes it: from hidden states to log-prob and entropy, and back, "
    "against PyTorch",
    "P8": "forward products, against libtorch's mm",
    "P9": "start and memory",
    "P10": "answers judged on one thread, against math-verify, and against latex2sympy2_extended "
    "with sympy's simplify",
    "P11": "algorithms that touch every token, against eager PyTorch, and window entropy against "
    "Python lists, as its source has it",
    "P12": "turns of conversations with environments (FrozenLake, 5 turns, answers of up to 100 "
    "tokens), against transformers with a dynamic cache that stays over the turns; and what a turn "
    "prefills, by counters",
    "P13": "environments on one thread, from state to state, against their Python",
    "P14": "pictures to what a vision tower is given on one thread, against Pillow and transformers "
    "with torchvision",
    "P15": "GRPO step of vision models, 8 prompts with a picture of 64 tokens x 8, 32 tokens, "
    "against TRL",
    "P16": "the vision tower, two blocks of the real width, against transformers' with kept pages",
    "P17": "GRPO step of SmolLM2-135M with adapters of rank 16 on all linear layers, sizes of P2, "
    "against TRL with PEFT, and against all weights here",
    "P18": "the endpoint with SmolLM2-135M, against `ares-train generate` on the same requests and "
    "llama.cpp's server (f32); its lines on ten minutes of load are in the file",
}


def cpu_model():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    find = lambda key: re.search(r"^%s\s*: (.*)$" % key, text, re.M)
    field = lambda key: find(key).group(1) if find(key) else "unknown"
    return {
        "cpu": field("model name"),
        "vendor": field("vendor_id"),
        "family": field("cpu family"),
        "flags": field("flags").split(),
    }


def machine(args):
    cpu = cpu_model()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=REPO, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    versions = {}
    for name in ("torch", "transformers", "trl", "peft"):  # P18 needs none of them
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return {
        "machine": "%s, family %s" % (cpu["cpu"], cpu["family"]),
        "cores": len(os.sched_getaffinity(0)),
        "isa": [f for f in cpu["flags"] if f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16")],
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "load": os.getloadavg()[0],
        "threads": args.threads,
        "rounds": args.rounds,
        "prefix": args.prefix,
        "commit": commit,
        "versions": versions,
    }


def cell(x, unit=""):
    return (
        ""
        if x is None
        else (
            "%.0f" % x
            if isinstance(x, (int, float)) and x >= 1000
            else "%.4g" % x if isinstance(x, (int, float)) else str(x)
        )
        + unit
    )


SHOWN = {"trl": "TRL", "peft": "PEFT"}


def readme(folder):
    """One section for each machine, from the last ratio line of each case of the newest files."""
    out = [
        "# Measured",
        "",
        "Made by `benchmarks/run.sh` from the `.jsonl` files here; both sides ran in turn on the "
        "same machine. `ratio` is of the best runs, `median` of the medians; above 1 is in our "
        "favour.",
        "`at least` and `goal` are the ratios we set out for (for start: seconds).",
        "",
    ]
    sections, shares = {}, {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in map(json.loads, path.read_text().splitlines()):
            if "machine" in line:
                head = line
                name = "%s, %d cores" % (line["machine"], line["cores"])
                section = sections.setdefault(name, {})
            elif "share_of_limit" in line:
                shares.setdefault(name, {})[line["id"], line["case"]] = line
            elif "case" in line and "at_least" in line:
                section[line["id"], line["case"]] = line, head, path.name
    for name, section in sections.items():
        heads = {(h["date"], f): h for _, h, f in section.values()}
        out += ["## " + name, ""]
        for (date, file), h in sorted(heads.items()):
            out.append(
                "- `%s`, %s, commit %s, %d threads each, load %.1f at the start%s%s"
                % (
                    file,
                    date,
                    h["commit"],
                    h["threads"],
                    h["load"],
                    ", under `%s`" % h["prefix"] if h["prefix"] else "",
                    "; " * bool(h["versions"])
                    + ", ".join(SHOWN.get(n, n) + " " + v for n, v in h["versions"].items()),
                )
            )
        prefixes = {h["prefix"] for _, h, _ in section.values() if h["prefix"].startswith("chrt")}
        for prefix in sorted(prefixes):
            out += [
                "",
                "`%s`: the machine had other work; real-time priority kept it away from "
                "both sides alike. It still shared caches and memory." % prefix,
            ]
        out += [
            "",
            "| id | case | ours | peer | unit | ratio | median | at least | goal | met |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        for id in MEASURES:
            rows = [v[0] for k, v in section.items() if k[0] == id]
            for x in rows:
                if isinstance(x["at_least"], str):
                    level, have = [-float(x[k].split()[0]) for k in ("at_least", "goal")], -x[
                        "ares"
                    ]
                else:
                    level, have = [x["at_least"], x["goal"]], x.get("ratio")
                met = (
                    ""
                    if level[0] is None
                    else "goal" if have >= level[1] else "yes" if have >= level[0] else "no"
                )
                out.append(
                    "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |"
                    % (
                        id,
                        x["case"],
                        cell(x["ares"]),
                        cell(x.get("peer")),
                        x["unit"],
                        cell(x.get("ratio")),
                        cell(x.get("ratio_median")),
                        cell(x["at_least"]),
                        cell(x["goal"]),
                        met,
                    )
                )
        if name in shares:
            out += [
                "",
                "Our arithmetic beside the fp32 limit of this machine, a loop of multiply-adds on "
                "every thread in the same run (`bench_limit`):",
                "",
                "| id | phase | GFLOP/s | limit | share |",
                "|---|---|---|---|---|",
            ]
            for x in sorted(shares[name].values(), key=lambda x: int(x["id"][1:])):
                out.append(
                    "| %s | %s | %s | %s | %.0f %% |"
                    % (
                        x["id"],
                        x["case"],
                        cell(x["gflops"]),
                        cell(x["limit_gflops"]),
                        100 * x["share_of_limit"],
                    )
                )
        notes = [
            "- %s, %s: %s" % (x["id"], x["case"], x["note"])
            for x, _, _ in section.values()
            if "note" in x
        ]
        out += [""] + notes + ["- %s: %s" % i for i in WHAT.items()] + [""]
    (folder / "README.md").write_text("\n".join(out))


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("ids", nargs="*", metavar="P1 ... P18", help="all when none is named")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--build", default=str(REPO / "build"))
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument(
        "--prefix", default="", help="put before every command of both sides, such as 'chrt -f 1'"
    )
    p.add_argument("--betas", nargs="+", default=["0", "0.04"], help="of P2 and P17")
    p.add_argument(
        "--forms",
        nargs="+",
        default=["plain", "kept"],
        help="of the peer in P2, P15 and P17: with glibc as it is, or told to keep freed pages",
    )
    p.add_argument("--llama", help="of P18: a Python that has xllamacpp, for llama.cpp's server")
    p.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    p.add_argument(
        "--readme", action="store_true", help="only write README.md anew from the results"
    )
    args = p.parse_args()
    unknown = [i for i in args.ids if i not in MEASURES]
    if unknown:
        p.error("%s: no such measure (choices: %s)" % (", ".join(unknown), " ".join(MEASURES)))
    args.results.mkdir(parents=True, exist_ok=True)
    if not args.readme:
        r = Run(args)
        name = re.sub(r"[^a-z0-9]+", "-", machine(args)["machine"].lower()).strip("-")
        r.out = args.results / ("%s-%s.jsonl" % (datetime.date.today().isoformat(), name))
        r.first_step = {}
        r.write(machine(args))
        for id in args.ids or MEASURES:
            MEASURES[id](r)
    readme(args.results)


main()
