#!/usr/bin/env python3
"""The questions of experiments/AEPO: sums worked step by step, of three difficulties; the same bytes on every run.

    python3 scripts/data/steps.py [OUT]        OUT: experiments/AEPO/data

train.jsonl, val.jsonl   {"problem", "answer", "level", "global_id"}: no question is in both
sft.jsonl                {"problem", "response", "level"}: worked answers to other questions, for the short supervised start
tiny/                    the same for a random character-level model

A question has five numbers, so that every answer takes four steps, some 40 to 60 tokens: level easy adds numbers of one
digit, medium adds numbers of one and two digits, hard adds and subtracts numbers of two digits. In tiny/ it has three, and
no words: "12+3+40=?" is answered "12+3=15 15+40=55 \\boxed{55}", some 25 characters.
"""
import json
import random
import sys
from pathlib import Path

LEVELS = ("easy", "medium", "hard")


def draw(level, n, rng):
    """n terms as (sign, number); no sum on the way is negative."""
    while True:
        if level == "easy":
            terms = [(1, rng.randint(1, 9)) for _ in range(n)]
        elif level == "medium":
            terms = [(1, rng.randint(10, 99) if i % 2 == 0 else rng.randint(1, 9)) for i in range(n)]
        else:
            terms = [(1 if i == 0 else rng.choice((1, -1)), rng.randint(10, 99)) for i in range(n)]
        total = 0
        for sign, number in terms:
            total += sign * number
            if total < 0:
                break
        else:
            return tuple(terms)


def spell(terms, gap):
    text = str(terms[0][1])
    for sign, number in terms[1:]:
        text += f"{gap}{'+' if sign > 0 else '-'}{gap}{number}"
    return text


def worked(terms, gap, line_end):
    total, lines = terms[0][1], []
    for sign, number in terms[1:]:
        then = total + sign * number
        lines.append(f"{spell(((1, total), (sign, number)), gap)}{gap}={gap}{then}")
        total = then
    return line_end.join(lines) + f"{line_end}\\boxed{{{total}}}", str(total)


def write(out, seed, n_terms, sizes, question, gap, line_end):
    """sizes: questions a level to train, to validate, to start from."""
    rng = random.Random(seed)
    files = {"train": [], "val": [], "sft": []}
    for level in LEVELS:
        found = {}
        while len(found) < sum(sizes):
            found[draw(level, n_terms, rng)] = None
        found, at = list(found), 0
        for split, size in zip(files, sizes):
            for terms in found[at : at + size]:
                response, answer = worked(terms, gap, line_end)
                row = {"problem": question.format(spell(terms, gap))}
                row.update({"response": response} if split == "sft" else {"answer": answer})
                row["level"] = level
                files[split].append(row)
            at += size
    out.mkdir(parents=True, exist_ok=True)
    for split, rows in files.items():
        if split != "val":
            rng.shuffle(rows)
        for i, row in enumerate(rows):
            if split != "sft":
                row["global_id"] = f"{split}-{i:04d}"
        (out / f"{split}.jsonl").write_text("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in rows))


def main(out):
    write(out, 20261121, 5, (40, 20, 200), "Work out {} step by step.", " ", "\n")
    write(out / "tiny", 20261122, 3, (160, 40, 500), "{}=?", "", " ")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2] / "experiments/AEPO/data")
