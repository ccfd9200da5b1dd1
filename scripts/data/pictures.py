#!/usr/bin/env python3
"""Questions about small pictures, for the vision example: experiments/AEPO/data/pictures_*.jsonl,
the same rows on every run.

    python3 scripts/data/pictures.py [OUT]          OUT: experiments/AEPO/data

Three kinds, a third each: how many squares there are (1 to 4), which of two squares is larger (left
or right), and which digit is drawn. A row has its picture as a PNG in base64, its question and its
answer: {"problem": "<image>How many squares?", "images": ["data:image/png;base64,..."],
"answer": "3", "kind": "count", "global_id": ...}. 1,200 rows to start from, 480 to train by reward,
120 to validate; no picture is in two of them. "shuffled" are the rows to train with their pictures
exchanged within a kind, so that nothing can be seen in them. Only Python's own library is needed.
"""

import base64
import json
import random
import struct
import sys
import zlib
from pathlib import Path

SIDE = 48
COLOURS = [(220, 40, 40), (40, 160, 60), (50, 80, 220), (230, 180, 30), (150, 60, 190)]
DIGITS = ["111101101101111", "010110010010111", "111001111100111", "111001111001111",
          "101101111001001", "111100111001111", "111100111101111", "111001001001001",
          "111101111101111", "111101111001111"]


def png(pixels):
    raw = b"".join(b"\0" + bytes(c for p in row for c in p) for row in pixels)

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw, 9)) +
            chunk(b"IEND", b""))


def fill(pixels, x, y, w, h, colour):
    for row in pixels[y:y + h]:
        row[x:x + w] = [colour] * w


def count(rng, pixels):
    """Squares of one colour in different cells of a grid of 4 x 4."""
    n, colour = rng.randint(1, 4), rng.choice(COLOURS)
    for cell in rng.sample(range(16), n):
        fill(pixels, cell % 4 * 12 + 1, cell // 4 * 12 + 1, 10, 10, colour)
    return "How many squares?", str(n)


def larger(rng, pixels):
    small, large = rng.randint(4, 8), rng.randint(14, 20)
    sides = [("left", large, small), ("right", small, large)]
    answer, left, right = rng.choice(sides)
    for x, size in ((12, left), (36, right)):
        y = rng.randint(size // 2 + 1, SIDE - size // 2 - 2)
        fill(pixels, x - size // 2, y - size // 2, size, size, rng.choice(COLOURS))
    return "Which square is larger?", answer


def digit(rng, pixels):
    n, colour = rng.randint(0, 9), rng.choice(COLOURS)
    x, y = rng.randint(10, 14), rng.randint(2, 6)
    for i, on in enumerate(DIGITS[n]):
        if on == "1":
            fill(pixels, x + i % 3 * 8, y + i // 3 * 8, 8, 8, colour)
    return "Which digit?", str(n)


KINDS = {"count": count, "larger": larger, "digit": digit}


def rows(rng, n, part, seen):
    out = []
    while len(out) < n:
        kind = list(KINDS)[len(out) % 3]
        shade = rng.randint(235, 255)
        pixels = [[(shade, shade, shade)] * SIDE for _ in range(SIDE)]
        question, answer = KINDS[kind](rng, pixels)
        picture = png(pixels)
        if picture in seen:
            continue
        seen.add(picture)
        out.append({"problem": "<image>" + question,
                    "images": ["data:image/png;base64," + base64.b64encode(picture).decode()],
                    "answer": answer, "kind": kind, "global_id": f"{part}-{len(out):04d}"})
    return out


def shuffled(rng, lines):
    out = [dict(r) for r in lines]
    for kind in KINDS:
        at = [i for i, r in enumerate(lines) if r["kind"] == kind]
        for i, j in zip(at, rng.sample(at, len(at))):
            out[i]["images"] = lines[j]["images"]
    return out


def main():
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "experiments/AEPO/data")
    rng, seen = random.Random(7), set()
    parts = {part: rows(rng, n, part, seen)
             for part, n in (("start", 1200), ("train", 480), ("val", 120))}
    parts["shuffled"] = shuffled(rng, parts["train"])
    out.mkdir(parents=True, exist_ok=True)
    for part, lines in parts.items():
        (out / f"pictures_{part}.jsonl").write_text(
            "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in lines))


if __name__ == "__main__":
    main()
