#!/usr/bin/env python3
"""The questions of experiments/AEPO: sums worked step by step, of three difficulties; the same
bytes on every run.

    python3 scripts/data/steps.py [OUT]        OUT: experiments/AEPO/data

train.jsonl, val.jsonl   {"problem", "answer", "level", "global_id"}: no question is in both
sft.jsonl                {"problem", "response", "level"}: worked answers to other questions, for
                         the short supervised start
tiny/                    the same for a random character-level model

A question has five numbers, so that every answer takes four steps, some 50 to 60 tokens: level easy
adds numbers up to 6, medium adds numbers of one digit to one of two, hard adds numbers of two
digits. A line begins with one of several words (OPENINGS), drawn anew for each: what comes next is
a choice in easy answers too. In tiny/ a question has three numbers, of one digit, of one and two,
of two (also subtracted), and no words: "12+3+40=?" is answered "12+3=15 15+40=55 \\boxed{55}", some
25 characters.
"""

import json
import random
import sys
from pathlib import Path

LEVELS = ("easy", "medium", "hard")
OPENINGS = (("First", "Start"), ("Then", "Next", "Now", "And"))  # of the first line, of the others


def ranges(level, tiny):
    """The range of a question's first number, and of its further ones in turn."""
    if level == "easy":
        return ((1, 9), (1, 9)) if tiny else ((1, 6), (1, 6))
    if level == "medium":
        return ((10, 99), (1, 9), (10, 99)) if tiny else ((10, 99), (1, 9), (1, 9))
    return ((10, 99), (10, 99)) if tiny else ((10, 59), (10, 59))


def draw(level, n, tiny, rng):
    """n terms as (sign, number); no sum on the way is negative."""
    first, *further = ranges(level, tiny)
    while True:
        terms = [(1, rng.randint(*first))]
        for i in range(n - 1):
            sign = rng.choice((1, -1)) if level == "hard" and tiny else 1
            terms.append((sign, rng.randint(*further[i % len(further)])))
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


def worked(terms, tiny, rng):
    total, lines = terms[0][1], []
    for i, (sign, number) in enumerate(terms[1:]):
        then = total + sign * number
        if tiny:
            lines.append(f"{spell(((1, total), (sign, number)), '')}={then}")
        else:
            lines.append(
                f"{rng.choice(OPENINGS[i > 0])} {spell(((1, total), (sign, number)), ' ')} = {then}"
            )
        total = then
    return (" " if tiny else "\n").join(lines + [f"\\boxed{{{total}}}"]), str(total)


def write(out, seed, n_terms, sizes, tiny):
    """sizes: questions a level to train, to validate, to start from."""
    rng, words = random.Random(seed), random.Random(seed + 1)
    files = {"train": [], "val": [], "sft": []}
    for level in LEVELS:
        found = {}
        while len(found) < sum(sizes):
            found[draw(level, n_terms, tiny, rng)] = None
        found, at = list(found), 0
        for split, size in zip(files, sizes):
            for terms in found[at : at + size]:
                response, answer = worked(terms, tiny, words)
                row = {
                    "problem": (
                        f"{spell(terms, '')}=?"
                        if tiny
                        else f"Work out {spell(terms, ' ')} step by step."
                    )
                }
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
        (out / f"{split}.jsonl").write_text(
            "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in rows)
        )


def main(out):
    write(out, 20261121, 5, (40, 40, 200), False)
    write(out / "tiny", 20261122, 3, (160, 40, 500), True)


if __name__ == "__main__":
    main(
        Path(sys.argv[1])
        if len(sys.argv) > 1
        else Path(__file__).resolve().parents[2] / "experiments/AEPO/data"
    )
