#!/usr/bin/env python3
"""Turns checks written in Python (`functions` of a row) into native ones (`checkers`).

    scripts/data/checkers.py ROWS.jsonl OUT.jsonl [--rest REST.jsonl]

Each of metadata.functions is the source of a function check_following(instruction, response).
ares-train runs no Python, and refuses a row that has functions but no checkers. Nothing is run
here either: a function is recognised by what it returns, one of

    len(response.split()) OP n      length_constraints:number_words
    response == response.lower()    change_case:english_lowercase    (.islower(), and for upper)
    "," not in response             punctuation:no_comma
    "text" in response              keywords:existence               (also response.lower())
    "text" not in response          keywords:forbidden_words
    response.endswith("text")       startend:end_checker             (also response.strip())
    a and b                         both

The native checks are IFEval's: words are runs of letters and digits, keywords and ends are compared
without regard to case. A row with any other function goes to REST as it is, and is counted by what
stands in the way.
"""

import argparse
import ast
import collections
import json

COUNTS = {ast.GtE: ("at least", 0), ast.Gt: ("at least", 1), ast.Lt: ("less than", 0),
          ast.LtE: ("less than", 1)}


def is_response(node):
    """response, or response with .strip(), .lower() after it."""
    while (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
           and node.func.attr in ("strip", "lower") and not node.args):
        node = node.func.value
    return isinstance(node, ast.Name) and node.id == "response"


def text_of(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def method(node, name):
    return (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            and node.func.attr == name)


def of_compare(node):
    left, op, right = node.left, node.ops[0], node.comparators[0]
    if len(node.ops) != 1:
        return None
    if isinstance(op, (ast.In, ast.NotIn)) and text_of(left) and is_response(right):
        if isinstance(op, ast.In):
            return [{"id": "keywords:existence", "kwargs": {"keywords": [left.value]}}]
        if left.value == ",":
            return [{"id": "punctuation:no_comma", "kwargs": {}}]
        return [{"id": "keywords:forbidden_words", "kwargs": {"forbidden_words": [left.value]}}]
    counts = (isinstance(left, ast.Call) and isinstance(left.func, ast.Name)
              and left.func.id == "len" and len(left.args) == 1 and method(left.args[0], "split")
              and not left.args[0].args and is_response(left.args[0].func.value))
    if counts and type(op) in COUNTS and isinstance(right, ast.Constant):
        relation, more = COUNTS[type(op)]
        if isinstance(right.value, int):
            return [{"id": "length_constraints:number_words",
                     "kwargs": {"num_words": right.value + more, "relation": relation}}]
    if isinstance(op, ast.Eq) and isinstance(left, ast.Name) and left.id == "response":
        return of_case(right, "lower", "upper")
    return None


def of_case(node, lower, upper):
    for name, check in ((lower, "english_lowercase"), (upper, "english_capital")):
        if method(node, name) and isinstance(node.func.value, ast.Name) and not node.args:
            if node.func.value.id == "response":
                return [{"id": "change_case:" + check, "kwargs": {}}]
    return None


def of_value(node):
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        parts = [of_value(v) for v in node.values]
        return sum(parts, []) if all(parts) else None
    if isinstance(node, ast.Compare):
        return of_compare(node)
    if method(node, "endswith") and len(node.args) == 1 and text_of(node.args[0]):
        if is_response(node.func.value):
            return [{"id": "startend:end_checker", "kwargs": {"end_phrase": node.args[0].value}}]
    return of_case(node, "islower", "isupper")


def checkers_of(source):
    """The checks that a function stands for, or None and the reason."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return None, "no Python"
    body = [n for n in body if not isinstance(n, (ast.Import, ast.ImportFrom))]
    if len(body) != 1 or not isinstance(body[0], ast.FunctionDef):
        return None, "more than one function"
    names = [a.arg for a in body[0].args.args]
    lines = [n for n in body[0].body
             if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    if names != ["instruction", "response"] or len(lines) != 1:
        return None, "more than one statement"
    if not isinstance(lines[0], ast.Return) or lines[0].value is None:
        return None, "no value returned"
    found = of_value(lines[0].value)
    return (found, None) if found else (None, "unknown form: " + ast.unparse(lines[0])[:60])


def convert(row):
    metadata = row.get("metadata") or {}
    functions = metadata.get("functions") or row.get("functions")
    if not functions or "checkers" in metadata:
        return None
    checkers = []
    for source in functions:
        found, reason = checkers_of(source)
        if not found:
            return reason
        checkers += found
    row["metadata"] = {k: v for k, v in metadata.items() if k != "functions"}
    row["metadata"]["checkers"] = checkers
    row.pop("functions", None)
    return None


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("rows")
    p.add_argument("out")
    p.add_argument("--rest", help="rows that are not understood; without it they are left out")
    args = p.parse_args()
    reasons, good = collections.Counter(), 0
    with open(args.rows, encoding="utf-8") as rows, open(args.out, "w", encoding="utf-8") as out, \
            open(args.rest or "/dev/null", "w", encoding="utf-8") as rest:
        for line in filter(str.strip, rows):
            row = json.loads(line)
            reason = convert(row)
            print(json.dumps(row, ensure_ascii=False), file=rest if reason else out)
            reasons[reason] += bool(reason)
            good += not reason
    print(f"{args.out}: {good} rows; not understood: {sum(reasons.values())}")
    for reason, n in reasons.most_common(10):
        if n:
            print(f"  {n:6}  {reason}")


main()
