"""Writes the rows of config.yaml: python3 rows.py experiments/VAPOR/data/train.jsonl

Questions for the next number, each after two answered ones that show the form. The two stored
answers of a row say the same, right number; one says that it was counted, the other guessed.
"""
import json
import pathlib
import random
import sys

EXAMPLES = [(12, "guessed"), (45, "counted")]


def question(n):
    return {"role": "user", "content": f"What comes after {n}?"}


def answer(n, how):
    return f"<answer>{n + 1}</answer> <how>{how}</how>"


def row(n):
    prompt = [{"role": "system", "content": "Count."}]
    for k, how in EXAMPLES:
        prompt += [question(k), {"role": "assistant", "content": answer(k, how)}]
    return {
        "prompt": prompt + [question(n)],
        "answer": str(n + 1),
        "chosen": answer(n, "counted"),
        "rejected": answer(n, "guessed"),
    }


def main():
    numbers = [n for n in range(10, 99) if n not in dict(EXAMPLES)]
    random.Random(1).shuffle(numbers)
    text = "".join(json.dumps(row(n)) + "\n" for n in numbers)
    pathlib.Path(sys.argv[1]).write_text(text)


main()
