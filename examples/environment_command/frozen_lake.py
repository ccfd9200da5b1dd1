#!/usr/bin/env python3
"""The built-in FrozenLake (4 x 4, without slips) as a program: the same maps, texts and rewards, so
that a run in it is the same bits as a run in `type: frozen_lake` with `is_slippery: false`."""

import json
import sys
from collections import deque

SIZE, BITS32, BITS128 = 4, (1 << 32) - 1, (1 << 128) - 1
MOVES = {"Left": (0, -1), "Down": (1, 0), "Right": (0, 1), "Up": (-1, 0)}


class Stream:
    """numpy's default_rng(seed): SeedSequence and PCG64."""

    def __init__(self, seed):
        words = [seed & BITS32] + ([seed >> 32] if seed >> 32 else [])
        self.hash, pool = 0x43B0D7E5, [0] * 4
        for i in range(4):
            pool[i] = self.mixed(words[i] if i < len(words) else 0)
        for i in range(4):
            for k in range(4):
                if i != k:
                    x = 0xCA01F9DD * pool[k] - 0x4973F715 * self.mixed(pool[i]) & BITS32
                    pool[k] = x ^ x >> 16
        key, out = 0x8B51F9DD, []
        for i in range(8):
            v = pool[i % 4] ^ key
            key = key * 0x58F38DED & BITS32
            v = v * key & BITS32
            out.append(v ^ v >> 16)
        w = [out[2 * i] | out[2 * i + 1] << 32 for i in range(4)]
        self.odd, self.state, self.half = (w[2] << 64 | w[3]) << 1 & BITS128 | 1, 0, None
        self.word()
        self.state = self.state + (w[0] << 64 | w[1]) & BITS128
        self.word()

    def mixed(self, v):
        v ^= self.hash
        self.hash = self.hash * 0x931E8875 & BITS32
        v = v * self.hash & BITS32
        return v ^ v >> 16

    def word(self):
        factor = 2549297995355413924 << 64 | 4865540595714422341
        self.state = self.state * factor + self.odd & BITS128
        x, turn = (self.state >> 64 ^ self.state) & (1 << 64) - 1, self.state >> 122
        return (x >> turn | x << (-turn & 63)) & (1 << 64) - 1

    def random(self):
        return (self.word() >> 11) * 2.0**-53

    def below_size(self):
        """integers(SIZE), a power of two: the high bits of half a word; nothing is drawn again."""
        if self.half is None:
            word = self.word()
            self.half, now = word >> 32, word & BITS32
        else:
            self.half, now = None, self.half
        return now * SIZE >> 32


def beside(cell, action):
    row, col = (min(max(x + d, 0), SIZE - 1) for x, d in zip(cell, MOVES[action]))
    return row, col


def has_way(holes, start, goal):
    seen, queue = {start}, deque([start])
    while queue:
        at = queue.popleft()
        for there in (beside(at, action) for action in MOVES):
            if there not in seen and there not in holes:
                seen.add(there)
                queue.append(there)
    return goal in seen


def reset(seed):
    global holes, player, goal
    stream, frozen = Stream(seed), 0.9 / (0.9 + (1 - 0.9))
    cells = [(row, col) for row in range(SIZE) for col in range(SIZE)]
    while True:
        holes = {cell for cell in cells if not stream.random() < frozen}
        player = stream.below_size(), stream.below_size()
        goal = stream.below_size(), stream.below_size()
        holes -= {player, goal}
        if player != goal and has_way(holes, player, goal):
            return {"observation": shown(), "actions": list(MOVES)}


def symbol(cell):
    if cell == player:
        return "√" if cell == goal else "X" if cell in holes else "P"
    return "G" if cell == goal else "O" if cell in holes else "_"


def shown():
    return "\n".join("".join(symbol((r, c)) for c in range(SIZE)) for r in range(SIZE))


def step(action):
    global player
    before, player = player, beside(player, action)
    return {"observation": shown(), "reward": int(player == goal),
            "done": player == goal or player in holes,
            "info": {"action_is_effective": player != before, "action_is_valid": True}}


for line in sys.stdin:
    question = json.loads(line)
    answer = reset(**question["reset"]) if "reset" in question else step(**question["step"])
    print(json.dumps(answer), flush=True)
