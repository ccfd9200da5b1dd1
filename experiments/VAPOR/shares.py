"""Prints, step by step, what answers of a run of config.yaml hold: python3 shares.py RUN WORD ...

right: the right number between <answer> tags; WORD: that word between <how> tags.
"""
import json
import pathlib
import sys


def main():
    run, words = pathlib.Path(sys.argv[1]), sys.argv[2:]
    print("step", "right", *words)
    for file in sorted(run.glob("rollouts/step_*.jsonl")):
        rows = [json.loads(line) for line in file.open()]
        wanted = [lambda r: f"<answer>{r['ground_truth']}</answer>" in r["response"]]
        wanted += [lambda r, w=w: f"<how>{w}</how>" in r["response"] for w in words]
        shares = [sum(map(has, rows)) / len(rows) for has in wanted]
        print(int(file.stem[5:]), *(f"{x:.2f}" for x in shares))


main()
