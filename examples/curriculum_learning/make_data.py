"""Makes the rows of examples/curriculum_learning/data from GSM8K and IFEval.

    python3 make_data.py GSM8K_FOLDER IFEVAL_FILE OUT_FOLDER

GSM8K: train.jsonl and test.jsonl of openai/grade-school-math (MIT). IFEval: input_data.jsonl of
google-research/instruction_following_eval (Apache 2.0). Problems of a single calculation and
prompts of one short instruction are taken, so that a small model has a chance.
"""

import json
import pathlib
import re
import sys

EASY = ("punctuation:no_comma", "change_case:english_lowercase", "change_case:english_capital",
        "length_constraints:number_words", "keywords:existence", "keywords:forbidden_words",
        "startend:quotation", "detectable_format:title", "startend:end_checker",
        "detectable_format:number_bullet_lists", "detectable_content:postscript")


def rows_of(path):
    return [json.loads(line) for line in open(path, encoding="utf-8") if line.strip()]


def problems(path, n):
    for row in rows_of(path):
        question, answer = row["question"], row["answer"]
        number = answer.split("####")[1].strip().replace(",", "")
        if answer.count("<<") == 1 and len(question) < 220 and re.fullmatch(r"-?\d+", number):
            yield {"prompt": question, "label": number, "metadata": {"rm_type": "number"}}
            n -= 1
            if not n:
                return


def instructions(path):
    for row in rows_of(path):
        ids, kwargs = row["instruction_id_list"], row["kwargs"]
        if len(row["prompt"]) < 260 and len(ids) <= 2 and all(i in EASY for i in ids):
            yield row["key"], row["prompt"], ids, kwargs


def write(path, rows):
    with open(path, "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(f"{path}: {len(rows)} rows")


def main():
    gsm8k, ifeval, out = (pathlib.Path(a) for a in sys.argv[1:4])
    write(out / "math.jsonl", list(problems(gsm8k / "train.jsonl", 160)))
    write(out / "math_eval.jsonl", list(problems(gsm8k / "test.jsonl", 24)))
    rows = list(instructions(ifeval))
    held_out = rows[::4]
    write(out / "instructions.jsonl",
          [{"prompt": prompt, "label": "",
            "metadata": {"rm_type": "format_verify",
                         "checkers": [{"id": i, "kwargs": k} for i, k in zip(ids, kwargs)]}}
           for key, prompt, ids, kwargs in rows if key not in {r[0] for r in held_out}])
    write(out / "instructions_eval.jsonl",
          [{"prompt": prompt, "label": "", "instruction_id_list": ids, "kwargs": kwargs}
           for _, prompt, ids, kwargs in held_out[:24]])


main()
