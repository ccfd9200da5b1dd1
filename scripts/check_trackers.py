#!/usr/bin/env python3
"""Reads the files of trainer.logger back with the programs that they are for.

    PYTHON scripts/check_trackers.py [ares-train]      default: build/ares-train

PYTHON is one that has the packages trackio, mlflow and wandb (docs/testing.md names the versions
that were tried). Trains a tiny model in a temporary folder: a run that is killed and goes on, a run
beside it in the same files, a run of MLflow's own in MLflow's file, and further steps after Trackio
and MLflow have brought their files up to date. Every number of metrics.jsonl must be there at its
step, and no other. Last line `check_trackers: N passed, N failed`.
"""
import json
import math
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else SOURCE / "build/ares-train").resolve()
WORK = pathlib.Path(tempfile.mkdtemp(prefix="check_trackers."))
os.chdir(WORK)
os.environ.update(TRACKIO_DIR=str(WORK / "trackio"), WANDB_DIR=str(WORK), MLFLOW_TRACKING_URI=f"sqlite:///{WORK}/mlflow.db")
passed = failed = 0


def check(what, good):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    print("ok  " if good else "FAIL", what, flush=True)


def words(name, steps):
    return [PROGRAM, f"trainer.experiment_name={name}", f"trainer.max_steps={steps}",
            "trainer.project_name=check_me", "trainer.save_freq=2", "trainer.val_freq=2",
            "trainer.logger=[console, file, tensorboard, trackio, mlflow, wandb]",
            f"data.train_files={SOURCE}/examples/data/sums/train.jsonl",
            f"data.val_files={SOURCE}/examples/data/sums/train.jsonl@[0:8]",
            "data.max_prompt_length=48", "data.max_response_length=12",
            "data.rollout_batch_size=4", "algorithm.adv_estimator=grpo",
            "algorithm.disable_kl=true", "worker.actor.model.model_path=model",
            "worker.actor.global_batch_size=4", "worker.rollout.n=4",
            "worker.reward.rewards=[{name: format, pattern: '.*[0-9].*', finished: false}]"]


def train(name, steps):
    out = subprocess.run(words(name, steps), capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"check_trackers: {name}: {out.stdout}{out.stderr}")


def kill_after(name, steps, rows):
    """Starts a run and kills it once its metrics.jsonl has so many rows."""
    log = pathlib.Path(f"runs/check_me/{name}/metrics.jsonl")
    with open("killed.txt", "w") as out:
        run = subprocess.Popen(words(name, steps), stdout=out, stderr=out)
        while run.poll() is None and not (log.exists() and log.read_text().count("\n") >= rows):
            time.sleep(0.002)
        run.send_signal(signal.SIGKILL)
        run.wait()


def logged(name):
    """{(metric, step): value or None} of metrics.jsonl"""
    out = {}
    for line in pathlib.Path(f"runs/check_me/{name}/metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        step = row.pop("step")
        out.update({(key, step): value for key, value in row.items()})
    return out


def same(a, b):
    """None stands for a number that is not finite."""
    finite = lambda x: None if isinstance(x, str) or x is None or not math.isfinite(x) else x
    return a.keys() == b.keys() and all(finite(a[k]) == finite(b[k]) for k in a)


def in_mlflows_names(rows):
    return {(re.sub(r"[^-A-Za-z0-9_./ :]", "_", key), step): v for (key, step), v in rows.items()}


def id_of(name):
    import hashlib
    return hashlib.sha256(str((WORK / "runs/check_me" / name).resolve()).encode()).hexdigest()[:32]


def trackio_raw(name):
    out = {}
    with sqlite3.connect("trackio/check_me.db") as db:
        for step, text in db.execute("select step, metrics from metrics where run_id = ?",
                                     (id_of(name),)):
            out.update({(key, step): value for key, value in json.loads(text).items()})
    return out


def mlflow_raw(name):
    with sqlite3.connect("mlflow.db") as db:
        return {(key, step): None if nan else value for key, step, value, nan in db.execute(
            "select key, step, value, is_nan from metrics where run_uuid = ?", (id_of(name),))}


def by_trackio(name):
    from trackio.sqlite_storage import SQLiteStorage
    SQLiteStorage.init_db("check_me")
    out = {}
    for row in SQLiteStorage.get_logs("check_me", name):
        out.update({(key, row["step"]): value for key, value in row.items()
                    if key not in ("step", "timestamp")})
    return out


def by_mlflow(name):
    from mlflow.tracking import MlflowClient
    client, out = MlflowClient(), {}
    run = client.get_run(id_of(name))
    for key in run.data.metrics:
        for m in client.get_metric_history(run.info.run_id, key):
            out[(key, m.step)] = m.value
    return run, out


def latest(rows):
    last = {}
    for (key, step), value in sorted(rows.items(), key=lambda x: x[0][1]):
        last[key] = value
    return last


def by_wandb(name):
    """History of all files of the run in the order of their names: a later one goes on."""
    out, runs, exits = {}, [], []
    for file in sorted(WORK.glob(f"wandb/offline-run-*-{id_of(name)[:8]}/run-*.wandb")):
        text = subprocess.run([pathlib.Path(sys.executable).parent / "wandb", "leet", "inspect",
                               "--json", file], capture_output=True, text=True, check=True).stdout
        first = True
        for record in map(json.loads, text.splitlines()):
            if record["type"] == "run":
                runs.append(record["run"])
            elif record["type"] == "exit":
                exits.append(record["exit"])
            elif record["type"] == "history":
                item = record["history"]["item"]
                step = item["_step"]
                if first:  # what the earlier process wrote of these steps is repeated
                    out = {k: v for k, v in out.items() if k[1] < step}
                first = False
                out.update({(key, step): v for key, v in item.items() if key[0] != "_"})
    return runs, exits, out


subprocess.run([PROGRAM, "init", "--arch", "qwen2", "--hidden", "32", "--layers", "2", "--heads",
                "2", "--kv-heads", "1", "--seed", "3", "--out", "model"], check=True,
               stdout=subprocess.DEVNULL)
kill_after("one", 8, 4)  # with step 0
before = logged("one")
check(f"killed after {max(step for _, step in before)} steps", max(s for _, s in before) < 8)
# the last row may have been written by the time of the signal, or not
last = max(step for _, step in before)
cut = lambda rows: {k: v for k, v in rows.items() if k[1] < last}
check("Trackio's file has them", same(cut(trackio_raw("one")), cut(before)))
check("MLflow's file has them", same(cut(mlflow_raw("one")), cut(in_mlflows_names(before))))
train("one", 8)
train("two", 4)
for name in ("one", "two"):
    rows = logged(name)
    print(f"{name}: {len(rows)} numbers of {len({s for _, s in rows})} steps")
    check(f"{name}: Trackio's file as written", same(trackio_raw(name), rows))
    check(f"{name}: MLflow's file as written", same(mlflow_raw(name), in_mlflows_names(rows)))
    check(f"{name}: read by trackio", same(by_trackio(name), rows))
    runs, exits, history = by_wandb(name)
    check(f"{name}: read by wandb", same(history, rows))
    check(f"{name}: W&B's run has its names and options",
          all(r["display_name"] == name and r["project"] == "check_me" for r in runs) and
          "worker" in json.dumps(runs[0]["config"]))
    check(f"{name}: W&B's run has ended", exits[-1].get("exit_code", 0) == 0)
start = time.time()
run, rows = by_mlflow("one")
print(f"mlflow: opened, and brought up to date, in {time.time() - start:.1f} s")
for name in ("one", "two"):
    run, rows = by_mlflow(name)
    want = in_mlflows_names(logged(name))
    check(f"{name}: read by mlflow", same(rows, want))
    check(f"{name}: mlflow's latest values", same(run.data.metrics, latest(want)))
    check(f"{name}: mlflow's run is finished, with options",
          run.info.status == "FINISHED" and run.info.run_name == name and
          run.data.params["worker.rollout.n"] == "4")
import mlflow
mlflow.set_experiment("check_me")
with mlflow.start_run(run_name="theirs") as theirs:
    for step in range(3):
        mlflow.log_metric("reward/overall", step / 2, step)
train("one", 12)  # goes on in files that are up to date
train("three", 2)
for name in ("one", "two", "three"):
    run, rows = by_mlflow(name)
    want = in_mlflows_names(logged(name))
    check(f"{name}: read by mlflow, later", same(rows, want))
    check(f"{name}: mlflow's latest values, later", same(run.data.metrics, latest(want)))
    check(f"{name}: read by trackio, later", same(by_trackio(name), logged(name)))
    check(f"{name}: read by wandb, later", same(by_wandb(name)[2], logged(name)))
from mlflow.tracking import MlflowClient
check("MLflow's own run is as it was",
      [m.value for m in MlflowClient().get_metric_history(theirs.info.run_id, "reward/overall")] ==
      [0, 0.5, 1])
experiment = MlflowClient().get_experiment_by_name("check_me")
check("all runs are found in one experiment",
      len(MlflowClient().search_runs([experiment.experiment_id])) == 4)
listed = subprocess.run([pathlib.Path(sys.executable).parent / "wandb", "sync", "--dry-run"],
                        capture_output=True, text=True)
check("wandb sync lists the runs", id_of("one")[:8] in listed.stdout + listed.stderr)
shown = subprocess.run([pathlib.Path(sys.executable).parent / "trackio", "list", "runs",
                        "--project", "check_me"], capture_output=True, text=True)
check("trackio lists the runs", all(n in shown.stdout for n in ("one", "two", "three")))
shutil.rmtree(WORK)
print(f"check_trackers: {passed} passed, {failed} failed")
sys.exit(failed > 0)
