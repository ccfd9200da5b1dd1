"""A walk as a program that takes its time: slow_walk.py up|down|meet FOLDER.

up, down: environment number n waits for n or 15 - n times 3 ms before each answer.
meet: a reset waits until all 16 environments are in theirs, and the first step of number 0 until
another one has made two steps; `met` tells whether that came.
"""

import json
import os
import sys
import time

way, folder = sys.argv[1], sys.argv[2]
patience = time.monotonic() + 40


def mark(name):
    open(os.path.join(folder, name), "w").close()


def wait_for(prefix, count):
    while sum(name.startswith(prefix) for name in os.listdir(folder)) < count:
        if time.monotonic() > patience:
            return False
        time.sleep(0.01)
    return True


def answer(question):
    global number, seed, at, steps
    met = True
    if "reset" in question:
        number, seed = question["reset"]["number"], question["reset"]["seed"]
        at, steps = seed % 5, 0
        if way == "meet":
            mark("reset%d" % number)
            met = wait_for("reset", 16)
    else:
        at += {"Left": -1, "Right": 1, "Up": 2, "Down": -2}[question["step"]["action"]]
        steps += 1
        if way == "meet" and steps == 2 and number:
            mark("second%d" % number)
        if way == "meet" and steps == 1 and number == 0:
            met = wait_for("second", 1)
    if way != "meet":
        time.sleep(0.003 * (number if way == "up" else 15 - number))
    return {"observation": "at %d" % at, "actions": ["Left", "Right", "Up", "Down"],
            "reward": at * at % 7 / 2, "done": steps == 4,
            "info": {"met": met, "success": at > 0}}


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
