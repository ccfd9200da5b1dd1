#!/usr/bin/env python3
"""What a teacher costs: steps of training without one, with a KL to the reference, and with
teachers of each kind, on one model and the same answers' lengths. JSON lines: the machine, then a
line per case with seconds and CPU seconds of a step and the peak of resident memory, each also
beside the case without a teacher (docs/distillation.md#cost).

    python3 benchmarks/distill.py [--prompts 8] [--n 4] [--length 32] [--steps 4] [--rounds 2]
                                  [--threads 1] [--hidden 256] [--layers 8] [--model DIR]

--model DIR: a model that is its own teacher from a directory, too; without it two random ones.
ARES_BUILD names another build folder. A step's seconds are those of steps 2 and later; CPU seconds
are those of the process less those of a run of one step. The best of the rounds counts, which
follow one another case by case.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
D, LOSS, TEACHER = "distillation.", "distillation.distillation_loss.", "distillation.teacher_model."
ON = [D + "enabled=true", LOSS + "use_task_rewards=true"]
HINT = [D + "context=row", D + "privileged_context_key=hint"]
KL = ["algorithm.disable_kl=false", "algorithm.use_kl_loss=true", "algorithm.kl_coef=0.04"]


def cases(teacher):
    other = [TEACHER + f"model_path={teacher}"]
    return {
        "no teacher": [],
        "reference, k3": KL,
        "reference, exact KL": KL + ["algorithm.kl_penalty=full"],
        "itself with a hint, jsd 1": ON + HINT,
        "itself with a hint, jsd 0.5": ON + HINT + [LOSS + "beta=0.5"],
        "where it began, with a hint, jsd 1": ON + HINT + [TEACHER + "kind=base"],
        "another model, jsd 1": ON + other,
        "another model, jsd 0.5": ON + other + [LOSS + "beta=0.5"],
        "another model, k3": ON + other + [LOSS + "loss_mode=k3"],
        "another model, k1 as an advantage": ON + other + [LOSS + "loss_mode=k1",
                                                           LOSS + "use_policy_gradient=true"],
    }


def run(words):
    """CPU seconds and peak MiB of a process that must succeed."""
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as p:
        said = p.stderr.read()
        _, status, used = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode:
        sys.exit(f"distill.py: {' '.join(words)}\n{said.decode()}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def processor():
    names = {"model name": "", "cpu family": "", "model": ""}
    for line in open("/proc/cpuinfo", encoding="utf-8"):
        key, _, value = line.partition(":")
        if key.strip() in names and not names[key.strip()]:
            names[key.strip()] = value.strip()
    return f"{names['model name']}, family {names['cpu family']}, model {names['model']}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name, value in (("prompts", 8), ("n", 4), ("length", 32), ("steps", 4), ("rounds", 2),
                        ("threads", 1), ("hidden", 256), ("layers", 8)):
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--model")
    o = p.parse_args()
    program = str(ROOT / os.environ.get("ARES_BUILD", "build") / "ares-train")
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True, check=False).stdout.strip()
    print(json.dumps({"benchmark": "distill", "processor": processor(), "cpus": os.cpu_count(),
                      "load": round(os.getloadavg()[0], 1), "commit": commit, **vars(o)}),
          flush=True)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        student = teacher = o.model
        for seed, name in ((1, "student"), (2, "teacher")) if not o.model else ():
            run([program, "init", "--arch", "qwen2", "--hidden", str(o.hidden), "--layers",
                 str(o.layers), "--heads", "4", "--kv-heads", "2", "--seed", str(seed), "--out",
                 str(work / name)])
            student, teacher = str(work / "student"), str(work / "teacher")
        with open(work / "rows.jsonl", "w", encoding="utf-8") as f:
            for i in range(o.prompts * (o.steps + 1)):
                a, b = i * 37 % 97, i * 53 % 89
                print(json.dumps({"prompt": f"{a}+{b}=?", "answer": str(a + b),
                                  "hint": f"The sum is {a + b}."}), file=f)
        common = [program, f"data.train_files={work / 'rows.jsonl'}", "data.max_prompt_length=64",
                  f"data.max_response_length={o.length}", f"data.rollout_batch_size={o.prompts}",
                  f"worker.actor.global_batch_size={o.prompts}", f"worker.rollout.n={o.n}",
                  "worker.rollout.ignore_eos=true", f"worker.actor.model.model_path={student}",
                  "worker.actor.optim.lr=1e-6", "worker.reward.rewards=[{name: random}]",
                  "worker.reward.accuracy=random", "algorithm.disable_kl=true",
                  "trainer.save_freq=-1", "trainer.save_minutes=null", "trainer.logger=[file]",
                  f"trainer.threads={o.threads}"]
        found = {}
        for r in range(o.rounds):
            for i, (name, words) in enumerate(cases(teacher).items()):
                at = work / f"run_{r}_{i}"
                first, _ = run(common + words + [f"trainer.run_dir={at}_1", "trainer.max_steps=1"])
                cpu, peak = run(common + words + [f"trainer.run_dir={at}",
                                                  f"trainer.max_steps={o.steps + 1}"])
                with open(at / "metrics.jsonl", encoding="utf-8") as f:
                    steps = [x for x in map(json.loads, f) if x.get("step", 0) > 1]
                if words[:1] == ON[:1] and not all(x["distillation/tokens"] for x in steps):
                    sys.exit(f"distill.py: {name}: a step was taught nothing")
                found.setdefault(name, []).append(
                    (statistics.median(x["timing_s/step"] for x in steps), (cpu - first) / o.steps,
                     peak))
        best = {name: [min(x) for x in zip(*rounds)] for name, rounds in found.items()}
        plain = best["no teacher"]
        for name, (seconds, cpu, peak) in best.items():
            print(json.dumps({"case": name, "s_per_step": round(seconds, 4),
                              "cpu_s_per_step": round(cpu, 4), "peak_mib": round(peak, 1),
                              "s_ratio": round(seconds / plain[0], 3),
                              "cpu_ratio": round(cpu / plain[1], 3),
                              "more_mib": round(peak - plain[2], 1)}), flush=True)


if __name__ == "__main__":
    main()
