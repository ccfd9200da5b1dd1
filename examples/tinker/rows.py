#!/usr/bin/env python3
"""Rows for the cookbook's sl_loop and rl_loop where no hub is at hand: sums, under the names and in
the columns of the data sets that the recipes load (docs/tinker.md). rl_loop gets 60 pairs of digits;
the other 40 are in test.jsonl.

    python3 examples/tinker/rows.py      # writes openai/gsm8k and HuggingFaceH4/no_robots here
"""

import json
import pathlib
import random

SUFFIX = " Provide a numerical answer without units, written inside \\boxed{}."
README = """---
configs:
- config_name: main
  data_files:
  - split: train
    path: train.jsonl
  - split: test
    path: test.jsonl
---
"""


def question(a, b):
    return {"question": f"What is {a} + {b}?", "answer": f"{a} + {b} = {a + b}\n#### {a + b}"}


def talk(a, b):
    asked = {"role": "user", "content": f"What is {a} + {b}?" + SUFFIX}
    return {"messages": [asked, {"role": "assistant", "content": f"\\boxed{{{a + b}}}"}]}


def write(path, rows):
    pathlib.Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


rng = random.Random(7)
digits = [(a, b) for a in range(10) for b in range(10)]
numbers = [(a, b) for a in range(20) for b in range(20)]
rng.shuffle(digits)
sums, talks = pathlib.Path("openai/gsm8k"), pathlib.Path("HuggingFaceH4/no_robots")
for folder in (sums, talks):
    folder.mkdir(parents=True, exist_ok=True)
(sums / "README.md").write_text(README)
write(sums / "train.jsonl", [question(*rng.choice(digits[:60])) for _ in range(600)])
write(sums / "test.jsonl", [question(*pair) for pair in digits[60:]])
write(talks / "train.jsonl", [talk(*rng.choice(numbers)) for _ in range(320)])
