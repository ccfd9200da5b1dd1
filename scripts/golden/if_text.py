"""Writes tests/golden/ifeval_text.json: random texts as NLTK, SyllaPy and Python's csv split them.

    pip install nltk==3.8.1 syllapy==0.7.2
    python scripts/golden/ifeval_text.py

The cases are sentences, words, syllables and CSV rows. NLTK's English Punkt model gets the
parameters of src/reward/ifeval/tables.json, so no data need be fetched: the golden shows that
the algorithm is the same, not that the abbreviations are.
"""

import csv
import io
import json
import platform
import random
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path

import syllapy
from nltk.tokenize.destructive import NLTKWordTokenizer
from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

ROOT = Path(__file__).resolve().parents[2]
SEED, EACH = 6, 150

WORDS = """Mr Dr e.g i.e U.S a I the The In in However 3 3.5 1,000 can not cannot gonna Wanna 'tis
'Twas d'ye more'n don n't 's 'll He he Co co Inc x B Edelman b p.m Ph.D é É 日本 v vs St C-co It i J
Walter said wrote lemme Gotta""".split()
MARKS = list(".?!.?!..,;:'\"`()[]{}<>*-@#$%&/") + [
    "...",
    ". . .",
    "--",
    "''",
    "``",
    "«",
    "»",
    "“",
    "”",
    "‘",
    "’",
    "„",
    "…",
    "—",
]
SPACES = [" "] * 8 + ["\n", "\t", "\n\n", "  ", "\u00a0", "\u2028", "\r", "\u3000"]
CSV = ["a", "b", ",", ",", '"', '"', "\n", "\r\n", "\r", " ", "é"]
COMPOUNDS = [
    "well-being",
    "t-shirt",
    "self-esteem",
    "mother-in-law",
    "x-ray",
    "a1-b",
    "don't",
    "(Apple)",
    "CHOCOLATE",
    "naïve",
    "",
    "--",
    "e",
    "tle",
]


def text(rng):
    parts = []
    for _ in range(rng.randint(2, 16)):
        kind = rng.random()
        parts.append(rng.choice(WORDS if kind < 0.45 else MARKS if kind < 0.7 else SPACES))
    return "".join(parts)


def rows_of(source):
    try:
        rows = [list(row) for row in csv.reader(io.StringIO(source))]
    except csv.Error:
        return {"count": -1, "rows": []}
    return {"count": len(rows), "rows": rows}


def main():
    tables = json.loads((ROOT / "src/reward/ifeval/tables.json").read_text())
    parameters = PunktParameters()
    parameters.abbrev_types = set(tables["abbreviations"])
    parameters.collocations = {tuple(pair.split(" ")) for pair in tables["collocations"]}
    parameters.sent_starters = set(tables["starters"])
    parameters.ortho_context = defaultdict(int, tables["orthography"])
    punkt, treebank, rng = PunktSentenceTokenizer(), NLTKWordTokenizer(), random.Random(SEED)
    punkt._params = parameters
    cases = []

    def add(function, inputs, expected):
        cases.append({"function": function, "inputs": inputs, "expected": expected})

    for _ in range(EACH):
        sample = text(rng)
        sentences = punkt.tokenize(sample)
        add("split_sentences", {"text": sample}, sentences)
        add(
            "word_tokenize",
            {"text": sample},
            [word for s in sentences for word in treebank.tokenize(s)],
        )
    for word in COMPOUNDS + rng.sample(sorted(syllapy.WORD_DICT), EACH):
        if word.replace("-", "").isalpha() or word in COMPOUNDS:
            add("syllables", {"word": word}, syllapy.count(word))
    for _ in range(EACH):
        sample = "".join(rng.choice(CSV) for _ in range(rng.randint(0, 12)))
        add("csv", {"text": sample}, rows_of(sample))
    metadata = {
        "command": "python scripts/golden/ifeval_text.py",
        "seed": SEED,
        "python": platform.python_version(),
        "nltk": version("nltk"),
        "syllapy": version("syllapy"),
    }
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    out = ROOT / "tests/golden/ifeval_text.json"
    out.write_text('{"metadata": %s, "cases": [\n%s\n]}\n' % (json.dumps(metadata), lines))


if __name__ == "__main__":
    main()
