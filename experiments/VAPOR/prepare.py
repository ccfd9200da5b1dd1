"""Writes the rows of the study into a folder: python3 prepare.py DIR

examples.jsonl  supervised rows, from which a tiny model learns to write <N>digit</N><S>word</S>,
                with five digits and two words that are all as likely
train.jsonl     questions with one right digit, and pairs of answers that prefer the word "yes"
"""
import json
import pathlib
import random
import sys

QUESTIONS = [a + b for a in "abcd" for b in "efgh"]


def digit(question):
    return "abcd".index(question[0])


def answer(number, word):
    return f"<N>{number}</N><S>{word}</S>"


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    examples = [
        {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": answer(n, w)}]}
        for q in QUESTIONS
        for n in range(5)
        for w in ("yes", "no")
    ]
    random.Random(1).shuffle(examples)
    write(folder / "examples.jsonl", examples)
    draw = random.Random(2)
    rows = []
    for q in QUESTIONS:
        n = draw.randrange(5)  # of both answers: the pair says nothing of the digit
        rows.append(
            {
                "prompt": q,
                "answer": str(digit(q)),
                "chosen": answer(n, "yes"),
                "rejected": answer(n, "no"),
            }
        )
    write(folder / "train.jsonl", rows)


main()
