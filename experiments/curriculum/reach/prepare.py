"""Writes the rows of the study into a folder: python3 prepare.py DIR

A question is a digit and moves, "7cab?"; a move turns a digit into another (MOVES), and the answer
writes all digits on the way, "7c1a2b8". Easy questions have one move, hard ones eight.

start.jsonl              questions of one to eight moves, from which a random model learns the form.
                         A move in them is right with probability RIGHT, else any other digit.
{easy,hard}.jsonl        questions of training, with the right answers
{easy,hard}_eval.jsonl   questions of evaluation; hard ones that neither start nor training shows
"""
import json
import pathlib
import random
import sys

MOVES = {"a": "3170465982", "b": "8249017635", "c": "5936281704"}  # of 0, 1, 2 ... 9
LENGTH = {"easy": 1, "hard": 8}
RIGHT = 0.45
START, TRAIN, EVAL = 6000, 2000, 200


def question(draw, n):
    return str(draw.randint(0, 9)) + "".join(draw.choice("abc") for _ in range(n))


def answer(question, move):
    digit = text = question[0]
    for letter in question[1:]:
        digit = move(digit, letter)
        text += letter + digit
    return text


def right(digit, letter):
    return MOVES[letter][int(digit)]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    draw, seen = random.Random(20261128), set()

    def guess(digit, letter):
        true = right(digit, letter)
        others = [d for d in "0123456789" if d != true]
        return true if draw.random() < RIGHT else draw.choice(others)

    rows = []
    for _ in range(START):
        asked = question(draw, draw.randint(LENGTH["easy"], LENGTH["hard"]))
        seen.add(asked)
        rows.append({"problem": asked + "?", "response": answer(asked, guess)})
    write(folder / "start.jsonl", rows)
    for level, n in LENGTH.items():
        for name, count in ((level, TRAIN), (level + "_eval", EVAL)):
            rows = []
            while len(rows) < count:
                asked = question(draw, n)
                if n == LENGTH["hard"] and asked in seen:  # there are but 30 easy questions
                    continue
                seen.add(asked)
                rows.append({"problem": asked + "?", "answer": answer(asked, right)})
            write(folder / f"{name}.jsonl", rows)


main()
