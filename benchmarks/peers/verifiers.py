"""The Python libraries that judge answers elsewhere, on one thread: the other side of
benchmarks/verifiers.c, the same JSON line.

    python benchmarks/peers/verifiers.py --suite math --rows FILE.jsonl [--form math-verify]
                                         [--most 200] [--repeat 3]

Rows as `bench_verifiers --suite NAME --dump` writes them; at most `--most` of them are judged, for
they take milliseconds each. Time limits are off (they cost a signal and an alarm per answer),
warnings are silent, and one pass warms up and does not count.
"""

import argparse
import json
import logging
import time


def math_verify():
    from math_verify import parse, verify

    logging.disable(logging.WARNING)

    def judge(row):
        gold = parse("\\boxed{%s}" % row["ground_truth"], parsing_timeout=None)
        given = parse(row["response"], parsing_timeout=None)
        return verify(gold, given, timeout_seconds=None)

    return judge


def sympy():
    """The least such a judge can do: the box, equal texts, else both parsed and their difference
    simplified."""
    import sympy
    from latex2sympy2_extended import latex2sympy

    def judge(row):
        text = row["response"]
        begin = text.rfind("\\boxed{") + 7
        depth, end = 1, begin
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        given, truth = text[begin : end - 1], row["ground_truth"]
        if given == truth:
            return True
        try:
            return sympy.simplify(latex2sympy(truth) - latex2sympy(given)) == 0
        except Exception:
            return False

    return judge


FORMS = {"math-verify": math_verify, "sympy": sympy}


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--suite", required=True)
    p.add_argument("--rows", required=True)
    p.add_argument("--form", choices=FORMS, default="math-verify")
    p.add_argument("--most", type=int, default=200)
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--threads", type=int, default=1, help="one, whatever is said")
    args = p.parse_args()
    rows = [json.loads(line) for line in open(args.rows, encoding="utf-8")][: args.most]
    judge = FORMS[args.form]()
    rates = []
    for _ in range(args.repeat + 1):
        begin = time.perf_counter()
        right = sum(bool(judge(row)) for row in rows)
        rates.append(len(rows) / (time.perf_counter() - begin))
    print(
        json.dumps(
            {
                "measure": "verify",
                "side": "peer",
                "suite": args.suite,
                "form": args.form,
                "value": float("%.6g" % max(rates[1:])),
                "unit": "answers/s",
                "all": [float("%.6g" % x) for x in rates[1:]],
                "rows": len(rows),
                "right": right,
                "threads": 1,
            }
        ),
        flush=True,
    )


main()
