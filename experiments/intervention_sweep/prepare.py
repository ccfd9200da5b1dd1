#!/usr/bin/env python3
"""Conversations for the supervised start of a small model, and a tokenizer for them.

Rooms come from `ares-train play`, so that they are made as in training, from seeds that training
does not use. A breadth-first search solves them; each action is replaced by a random one with
probability --noise, so that the model that learns from them plays well, but not always, and
reinforcement learning has something to do. Only Python's standard library is needed.

  prepare.py --program build/ares-train --env CoordSokoban --out DIR [option=value ...]

writes DIR/sft.jsonl and DIR/tokenizer/. The tokenizer has the bytes and, as whole tokens, the words
and phrases of which these conversations consist: a turn of theirs is then twenty tokens, not
seven hundred."""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import deque

MOVES = {"Up": (-1, 0), "Down": (1, 0), "Left": (0, -1), "Right": (0, 1)}
SPECIAL = "<|im_start|>", "<|im_end|>"
# What varies in a conversation; the text between is made of phrases.
ATOMS = re.compile(r"(You're a helpful[\s\S]*?separator \" \|\| \"\n|:\nState:\nBoard size:[^\n]*"
                   r"|\n[A-Z][a-z ]+: \(\d+, \d+\)|, \(\d+, \d+\)| actions left\. Always[^\n]*\n?"
                   r"|<\|im_start\|>|<\|im_end\|>|-?\d+\.\d+|\d+|\b(?:Up|Down|Left|Right)\b)")


class Room:
    """A room of FrozenLake (no slips) or Sokoban (one box), read from its grid."""

    def __init__(self, kind, grid):
        self.kind, self.rows = kind, len(grid)
        cells = {(r, c): s for r, row in enumerate(grid) for c, s in enumerate(row)}
        find = lambda symbols: sorted(at for at, s in cells.items() if s in symbols)
        self.start, self.walls, self.first_box = find("PS")[0], set(find("#")), None
        if kind == "sokoban":
            if len(find("X√")) != 1:
                sys.exit("prepare.py: only rooms with one box can be solved; leave out num_boxes")
            self.goal, self.first_box = find("O√S")[0], find("X√")[0]
        else:
            self.goal, self.holes = find("G")[0], find("O")
        self.cells = cells
        self.reset()

    def reset(self):
        self.player, self.box = self.start, self.first_box

    def state(self):
        return self.player, self.box

    def after(self, state, name):
        """The state after an action."""
        (r, c), box = state
        dr, dc = MOVES[name]
        to, beyond = (r + dr, c + dc), (r + 2 * dr, c + 2 * dc)
        if to not in self.cells or to in self.walls:
            return state
        if to != box:
            return to, box
        return state if beyond in self.walls else (to, beyond)

    def won(self, state):
        return (state[1] if self.kind == "sokoban" else state[0]) == self.goal

    def lost(self, state):
        return self.kind == "frozen_lake" and state[0] in self.holes

    def way(self):
        """Actions of a shortest way to the end; None where there is none."""
        before, queue = {self.state(): None}, deque([self.state()])
        while queue:
            at = queue.popleft()
            if self.won(at):
                names = []
                while before[at]:
                    at, name = before[at]
                    names.append(name)
                return names[::-1]
            if self.lost(at):
                continue
            for name in MOVES:
                there = self.after(at, name)
                if there not in before:
                    before[there] = at, name
                    queue.append(there)
        return None

    def text(self):
        """The state as `observation_format: coord` shows it."""
        cell = "({0[0]}, {0[1]})".format
        cols = len(self.cells) // self.rows
        lines = [f"Board size: {self.rows} rows x {cols} cols (zero-indexed)."]
        if self.kind == "sokoban":
            lines += ["Targets: " + cell(self.goal), "Boxes: " + cell(self.box),
                      ("Player on target: " if self.player == self.goal else "Player: ")
                      + cell(self.player)]
        else:
            lines += ["Start: " + cell(self.start), "Goal: " + cell(self.goal),
                      "Player: " + cell(self.player)]
            if self.holes:
                lines.append("Holes: " + ", ".join(map(cell, self.holes)))
        return "\n".join(lines)


def play(args, seed, *words):
    """The messages that `ares-train play` shows: system, first user message."""
    command = [args.program, "play", "--env", args.env, "--seed", str(seed), "--no-think",
               *args.options, *words]
    shown = subprocess.run(command, input="", capture_output=True, encoding="utf-8")
    if shown.returncode != 0:
        sys.exit(f"prepare.py: {' '.join(command)}: {shown.stderr.strip()}")
    _, system, user = re.split(r"^--- (?:system|user)\n", shown.stdout, flags=re.M)
    return system, user.split("--- end\n")[0]


def between(text, first, last):
    return text.split(first, 1)[1].split(last, 1)[0]


def read_room(args, kind, seed):
    """A room, the system message, and the user message with marks for what varies."""
    system, user = play(args, seed, "observation_format=grid")
    grid = between(user, "State:\n", "\nYou have")
    user = user.replace(grid, "{state}").replace("Turn 1:", "Turn {turn}:")
    return Room(kind, grid.split("\n")), system, user.replace("have 10 ", "have {left} ")


def conversation(args, rng, room, system, user):
    """A played episode as messages, and whether it was won."""
    room.reset()
    messages, left, turn, over = [{"role": "system", "content": system}], 10, 0, False
    while not over and turn < args.turns:
        turn += 1
        text = user.format(turn=turn, state=room.text(), left=left)
        if turn > 1:
            text = f"Reward:\n{reward!r}\n{text}"
        names, reward = [], 0
        for _ in range(min(left, 1 if rng.random() < args.single else 2)):
            way = room.way()
            names.append(way[0] if way and rng.random() >= args.noise else rng.choice(list(MOVES)))
            room.player, room.box = room.after(room.state(), names[-1])
            reward += -0.1 if room.kind == "sokoban" else 0
            left -= 1
            if over := room.won(room.state()) or room.lost(room.state()):
                break
        over |= not left
        answer = f"<answer>{' || '.join(names)}</answer>"
        messages += [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]
    return messages, room.won(room.state())


def rendered(messages):
    return "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)


def write_tokenizer(args, conversations):
    """The tokenizer of bytes, and a token for every phrase of the conversations."""
    directory = os.path.join(args.out, "tokenizer")
    shutil.rmtree(directory, ignore_errors=True)
    subprocess.run([args.program, "init", "--arch", "qwen2", "--hidden", "32", "--layers", "1",
                    "--heads", "2", "--kv-heads", "1", "--out", directory], check=True,
                   stdout=subprocess.DEVNULL)
    os.remove(os.path.join(directory, "model.safetensors"))
    count = {}
    for messages in conversations:
        for phrase in ATOMS.split(rendered(messages)):
            count[phrase] = count.get(phrase, 0) + 1
    phrases = sorted(p for p, n in count.items() if len(p) > 1 and n > 2 and p not in SPECIAL)
    path = os.path.join(directory, "tokenizer.json")
    with open(path, encoding="utf-8") as file:
        tokenizer = json.load(file)
    first = max(t["id"] for t in tokenizer["added_tokens"]) + 1
    tokenizer["added_tokens"] += [
        {"id": first + i, "content": p, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": False} for i, p in enumerate(phrases)]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(tokenizer, file, ensure_ascii=False, indent=1)
    return len(phrases)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--program", default="build/ares-train", help="(build/ares-train)")
    p.add_argument("--env", required=True, choices=["CoordSokoban", "CoordFrozenLake"])
    p.add_argument("--out", required=True)
    p.add_argument("--rooms", type=int, default=1500)
    p.add_argument("--episodes", type=int, default=4, help="of each room")
    p.add_argument("--first-seed", type=int, default=1000000)
    p.add_argument("--noise", type=float, default=0.4, help="share of random actions (0.4)")
    p.add_argument("--single", type=float, default=0.2, help="share of single actions (0.2)")
    p.add_argument("--turns", type=int, default=5)
    p.add_argument("options", nargs="*", metavar="option=value", help="of the environment")
    args = p.parse_args()
    if not shutil.which(args.program):
        sys.exit(f"prepare.py: there is no program {args.program}; build it, or name it (--program)")
    args.options.append("observation_format=coord")
    kind = "sokoban" if "okoban" in args.env else "frozen_lake"
    rng, conversations, won = random.Random(args.first_seed), [], 0
    os.makedirs(args.out, exist_ok=True)
    for seed in range(args.first_seed, args.first_seed + args.rooms):
        room, system, user = read_room(args, kind, seed)
        if seed < args.first_seed + 10 and room.text() not in play(args, seed)[1]:
            sys.exit(f"prepare.py: seed {seed}: the program shows another text than this script")
        for _ in range(args.episodes):
            messages, success = conversation(args, rng, room, system, user)
            conversations.append(messages)
            won += success
    with open(os.path.join(args.out, "sft.jsonl"), "w", encoding="utf-8") as file:
        for messages in conversations:
            print(json.dumps({"messages": messages}, ensure_ascii=False), file=file)
    n = write_tokenizer(args, conversations)
    print(f"{args.out}: {len(conversations)} conversations, {won} of them won; {n} phrases")


main()
