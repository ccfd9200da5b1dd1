#!/usr/bin/env python3
"""The data sets of the examples: examples/data/arithmetic and examples/data/sums, the same bytes on
every run.

    python3 scripts/data/arithmetic.py [OUT]        OUT: examples/data

arithmetic  questions in words, for a model that speaks: {"prompt": "What is 7 + 5?", "answer":
            "12", "level": 1, "global_id": ...}. Level 1 adds numbers of one digit, level 2 adds and
            subtracts numbers of two digits, level 3 of three. 600 rows a level train, 60 validate,
            and no question is in both (7 + 5 and 5 + 7 are two questions). Level 1 has 100
            questions in all: 60 of them train, ten times each, so that the levels stay balanced,
            and 40 validate.
sums        worked sums of two numbers of three digits for a model that starts from random weights:
            3,000 to learn the working from ({prompt, response}), and others, with the answer alone,
            to train and validate by reward.
"""

import json
import random
import sys
from pathlib import Path

LEVELS = {1: (range(0, 10), "+"), 2: (range(10, 100), "+-"), 3: (range(100, 1000), "+-")}


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in rows))


def questions(level, count, rng):
    """Different (a, op, b), at most count; the smaller number is subtracted from the larger."""
    numbers, ops = LEVELS[level]
    if len(numbers) ** 2 * len(ops) <= count:
        found = [(a, op, b) for op in ops for a in numbers for b in numbers]
        rng.shuffle(found)
        return found
    found = {}
    while len(found) < count:
        a, b, op = rng.choice(numbers), rng.choice(numbers), rng.choice(ops)
        found[(max(a, b), op, min(a, b)) if op == "-" else (a, op, b)] = None
    return list(found)


def arithmetic(out, rng):
    sets = {"train": [], "val": []}
    for level in LEVELS:
        found = questions(level, 660, rng)
        held_out = min(60, len(found) * 2 // 5)
        train = found[held_out:] * (600 // (len(found) - held_out))
        for split, part in (("val", found[:held_out]), ("train", train)):
            for a, op, b in part:
                answer = a + b if op == "+" else a - b
                sets[split].append(
                    {"prompt": f"What is {a} {op} {b}?", "answer": str(answer), "level": level}
                )
    first = 0
    for split in ("train", "val"):
        rows = sets[split]
        if split == "train":
            rng.shuffle(rows)
        for i, row in enumerate(rows):
            row["global_id"] = first + i
        first += len(rows)
        write(out / "arithmetic" / f"{split}.jsonl", rows)


def working(a, b):
    """Columns from the right, the carry third: 123+456 -> 3+6+0=9 2+5+0=7 1+4+0=5."""
    steps, carry = [], 0
    for place in range(3):
        x, y = a // 10**place % 10, b // 10**place % 10
        total = x + y + carry
        steps.append(f"{x}+{y}+{carry}={total}")
        carry = total // 10
    return " ".join(steps)


def sums(out, rng):
    pairs = {}
    while len(pairs) < 3000 + 2000 + 200:
        pairs[(rng.randrange(100, 1000), rng.randrange(100, 1000))] = None
    rows = []
    for i, (a, b) in enumerate(pairs):
        rows.append(
            {
                "prompt": f"{a}+{b}=?",
                "response": f"<think>{working(a, b)}</think>\\boxed{{{a + b}}}",
                "answer": str(a + b),
                "global_id": i,
            }
        )
    plain = [{k: r[k] for k in ("prompt", "answer", "global_id")} for r in rows]
    write(
        out / "sums" / "sft.jsonl",
        [{k: r[k] for k in ("prompt", "response", "answer")} for r in rows[:3000]],
    )
    write(out / "sums" / "train.jsonl", plain[3000:5000])
    write(out / "sums" / "val.jsonl", rows[5000:])


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "examples/data")
    arithmetic(target, random.Random(20260101))
    sums(target, random.Random(20260102))
