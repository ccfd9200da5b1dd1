"""Figures of benchmarks/gpu/run.sh beside their rooflines.

    report.py add FILE GOAL COMMAND   JSON lines from stdin, with goal and command, to the end of FILE
    report.py show FILE               a table
    report.py write FILE CARD COMMIT  the lines with card, date, commit and share, to stdout

A roofline is the time in which the device could move the bytes or compute the FLOP of a line, the
longer of the two, at the rates of the lines with the goal "limit", which the same run measured. That
of a step is the sum of those of its phases, which do not overlap.
"""

import json
import sys
import time


def rows(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def cost(row):
    """Seconds of a line, and bytes and FLOP of each of its phases; None: a line of none of the programs."""
    if "seconds" in row:
        return row["seconds"], [(row.get("bytes", 0), row.get("flop", 0))]
    if "kernel_s" in row:  # bench_algo_cuda
        return row["kernel_s"] or row["call_s"], [(row.get("bytes", 0), 0)]
    measure = row.get("measure")
    value = row.get("median") or row.get("value")
    if measure in ("decode", "update"):
        flop = row.get("gflop_per_token", 0) * 1e9
        return 1 / value, [(row.get("bytes_per_token", 0), flop)]
    if "gflop_per_patch" in row:  # bench_vision
        return 1 / value, [(0, row["gflop_per_patch"] * 1e9)]
    if measure == "grpo_step":
        generate = row.get("generate_bytes", 0), row["generate_gflop"] * 1e9
        return value, [generate, (0, row["update_gflop"] * 1e9)]
    return None


def rates(lines):
    found = {"bytes": 0.0, "flop": 0.0}
    for row in lines:
        if row.get("goal") == "limit":
            found[row["what"]] = max(found[row["what"]], row[row["what"]] / row["seconds"])
    return found


def shares(lines):
    limit = rates(lines)
    for row in lines:
        price = cost(row)
        if not price or row.get("goal") == "limit":
            yield row
            continue
        seconds, phases = price
        least = sum(max(x / limit[k] if limit[k] else 0 for k, x in zip(("bytes", "flop"), phase)) for phase in phases)
        more = {"took_s": seconds}
        if least:
            more.update(roofline_s=least, share=least / seconds)
        yield {**row, **more}


def add(path, goal, command):
    with open(path, "a") as file:
        for line in sys.stdin:
            if not line.startswith("{"):
                continue
            try:
                row = json.loads(line.replace(":nan", ":null"))
            except ValueError:
                continue  # cut by the time limit
            if goal:
                row["goal"] = goal
            file.write(json.dumps({**row, "command": command}) + "\n")


def show(path):
    for row in shares(rows(path)):
        name = row.get("what") or "%s %s" % (row.get("measure"), row.get("model", "").split("/")[-1])
        took = row.get("took_s", row.get("seconds", 0))
        roofline = "%.4g s, %.0f %%" % (row["roofline_s"], 100 * row["share"]) if "share" in row else ""
        print("%-6s %-46s %-6s %10.4g s  %s" % (row.get("goal", ""), name, row.get("side", ""), took, roofline))


def write(path, card, commit):
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    for row in shares(rows(path)):
        print(json.dumps({**row, "card": card, "date": date, "commit": commit}))


{"add": add, "show": show, "write": write}[sys.argv[1]](*sys.argv[2:])
