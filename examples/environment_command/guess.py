#!/usr/bin/env python3
"""An environment of your own as a program: reads questions from stdin, a line of JSON each, and
answers each with a line on stdout (docs/environments.md#a-program-of-your-own)."""

import json
import random
import sys


def reset(seed):
    global secret, left
    secret, left = random.Random(seed).randint(1, 20), 5
    return {"observation": f"Guess a number from 1 to 20. {left} guesses are left."}


def step(action):
    global left
    left -= 1
    guess = int(action) if action.strip().isdecimal() else 0
    hint = "right" if guess == secret else "too low" if guess < secret else "too high"
    return {"observation": f"{action} is {hint}. {left} guesses are left.",
            "reward": float(guess == secret), "done": guess == secret or left == 0,
            "info": {"success": guess == secret}}


for line in sys.stdin:
    question = json.loads(line)
    answer = reset(**question["reset"]) if "reset" in question else step(**question["step"])
    print(json.dumps(answer), flush=True)
