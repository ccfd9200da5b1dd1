"""Writes the rows of the study into a folder: python3 prepare.py DIR

start.jsonl               worked sums, from which a random model learns the form of an answer
{easy,hard}.jsonl         questions of the two data sets
{easy,hard}_eval.jsonl    questions that neither start nor training shows

Numbers have two digits. An easy question adds two of them, "47+38=?", and is answered in one step,
"47+38=85 \\boxed{85}"; a hard one adds three, in two steps, of which the second takes up the result of
the first.
"""
import json
import pathlib
import random
import sys

TERMS = {"easy": 2, "hard": 3}
START = {"easy": 700, "hard": 500}
TRAIN, EVAL = 400, 120


def sums(level, n, draw):
    """n different questions, as tuples of their numbers."""
    found = {}
    while len(found) < n:
        found[tuple(draw.randint(10, 99) for _ in range(TERMS[level]))] = None
    return list(found)


def spell(numbers):
    return "+".join(map(str, numbers)) + "=?"


def worked(numbers):
    total, steps = numbers[0], []
    for number in numbers[1:]:
        steps.append(f"{total}+{number}={total + number}")
        total += number
    return " ".join(steps) + f" \\boxed{{{total}}}"


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    draw, start = random.Random(20261123), []
    for level in TERMS:
        found = sums(level, START[level] + TRAIN + EVAL, draw)
        start += [{"problem": spell(x), "response": worked(x)} for x in found[: START[level]]]
        rest = [{"problem": spell(x), "answer": str(sum(x))} for x in found[START[level] :]]
        write(folder / f"{level}.jsonl", rest[:TRAIN])
        write(folder / f"{level}_eval.jsonl", rest[TRAIN:])
    draw.shuffle(start)
    write(folder / "start.jsonl", start)


main()
