#!/usr/bin/env python3
"""The questions of experiments/AEPO: sums worked step by step, of three difficulties; the same bytes on every run.

    python3 scripts/data/steps.py [OUT]        OUT: experiments/AEPO/data

train.jsonl, val.jsonl   {"problem", "answer", "level", "global_id"}: no question is in both
sft.jsonl                {"problem", "response", "level"}: worked answers to other questions, for the short supervised start

A question has five numbers, so that every answer takes four steps, some 40 to 60 tokens: level easy adds numbers of one
digit, medium adds numbers of one and two digits, hard adds and subtracts numbers of two digits.
"""
import json
import random
import sys
from pathlib import Path

TERMS = 5
TRAIN, VAL, SFT = 40, 20, 200  # questions a level


def draw(level, rng):
    """Terms as (sign, number); no sum on the way is negative."""
    while True:
        if level == "easy":
            terms = [(1, rng.randint(1, 9)) for _ in range(TERMS)]
        elif level == "medium":
            terms = [(1, rng.randint(10, 99) if i % 2 == 0 else rng.randint(1, 9)) for i in range(TERMS)]
        else:
            terms = [(1 if i == 0 else rng.choice((1, -1)), rng.randint(10, 99)) for i in range(TERMS)]
        total = 0
        for sign, number in terms:
            total += sign * number
            if total < 0:
                break
        else:
            return tuple(terms)


def question(terms):
    text = str(terms[0][1])
    for sign, number in terms[1:]:
        text += f" {'+' if sign > 0 else '-'} {number}"
    return f"Work out {text} step by step."


def worked(terms):
    total, lines = terms[0][1], []
    for sign, number in terms[1:]:
        then = total + sign * number
        lines.append(f"{total} {'+' if sign > 0 else '-'} {number} = {then}")
        total = then
    return "\n".join(lines) + f"\n\\boxed{{{total}}}", str(total)


def main(out):
    rng = random.Random(20261121)
    files = {"train": [], "val": [], "sft": []}
    for level in ("easy", "medium", "hard"):
        found = {}
        while len(found) < TRAIN + VAL + SFT:
            found[draw(level, rng)] = None
        found = list(found)
        for split, part in (("train", found[:TRAIN]), ("val", found[TRAIN:TRAIN + VAL]), ("sft", found[TRAIN + VAL:])):
            for terms in part:
                response, answer = worked(terms)
                row = {"problem": question(terms)}
                row.update({"response": response} if split == "sft" else {"answer": answer})
                row["level"] = level
                files[split].append(row)
    out.mkdir(parents=True, exist_ok=True)
    for split, rows in files.items():
        if split != "val":
            rng.shuffle(rows)
        for i, row in enumerate(rows):
            if split != "sft":
                row["global_id"] = f"{split}-{i:04d}"
        (out / f"{split}.jsonl").write_text("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2] / "experiments/AEPO/data")
