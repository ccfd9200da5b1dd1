#!/usr/bin/env python3
"""A reward of your own as a program: reads a line of JSON for each response, answers each with a
line, in order.

In:  {"response": "...", "ground_truth": "...", "prompt": "...", "finished": true,
      "response_length": 12, "row": {...}}
Out: 0.5                                  or   {"score": 0.5, "accuracy": true, "words": 12}

`finished` is false when the response was cut by length, `response_length` counts its tokens, `row`
is the row of the data set. The program is started once and serves the whole run; print nothing else
on stdout (stderr is free), and flush every answer. A response that is answered too late, or with a
crash, is left out of training: the program is started again for the others.
"""

import json
import sys


def score(item):
    words = item["response"].split()
    right = bool(words) and words[-1].strip(".") == item["ground_truth"]
    return {"score": float(right) - 0.01 * max(0, len(words) - 50), "accuracy": right}


for line in sys.stdin:
    print(json.dumps(score(json.loads(line))), flush=True)
