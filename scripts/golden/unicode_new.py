"""Writes src/text/unicode_new.h: what `tokenizers` knows and Unicode 14 does not have yet.

    pip install tokenizers; python scripts/golden/unicode_new.py ASSIGNED > src/text/unicode_new.h
    python scripts/golden/unicode_new.py --classes > src/text/unicode_class.h

With --classes: all letters and numbers of its patterns, for the scanner of words (scan.c).

ASSIGNED is a file of ranges "first-last" in hexadecimal: the code points that Unicode 14 assigns
(\\P{Cn} of PCRE2 10.42). The library's own engine is asked for the category of every other code
point, so that the split patterns mean the same whatever Unicode version the system's PCRE2 and
utf8proc have (14 or later).

The library's normal forms are older than Unicode 14: a further table lists the code points to which
Unicode 14 gives a combining class or a decomposition and which the library leaves alone. Run this
with a Python whose unicodedata has version 14 or later.
"""

import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = (
    "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
)
HANGUL = range(0xAC00, 0xD7A4)
SCRIPTS = "Han Hiragana Katakana Hangul".split()


def matches(pattern, points):
    split = pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str
    return {c for c in points if not split(chr(c))}


def ranges(points):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def classes():
    points = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    print(
        "/* Made by scripts/golden/unicode_new.py --classes with tokenizers %s; do not edit. */"
        % tokenizers.__version__
    )
    for name, pattern in (("letters", r"\p{L}"), ("numbers", r"\p{N}")):
        print("/* First and last code points of %s. */" % pattern)
        print("static const uint32_t unicode_%s[][2] = {" % name)
        row = ""
        for first, last in ranges(matches(pattern, points)):
            cell = "{ 0x%x, 0x%x }," % (first, last)
            if len(row) + 1 + len(cell) > 96:
                print("   " + row)
                row = ""
            row += " " + cell
        print("   " + row + "\n};")


def main():
    if sys.argv[1] == "--classes":
        return classes()
    assigned_14 = set()
    for line in open(
        sys.argv[1]
    ):  # "first-last" in hexadecimal: what Unicode 14 assigns (PCRE2 10.42: \P{Cn})
        first, last = line.strip().split("-")
        assigned_14.update(range(int(first, 16), int(last, 16) + 1))
    points = [c for c in range(1, 0x110000) if not 0xD800 <= c <= 0xDFFF and c not in assigned_14]
    new = set(points) - matches(r"\p{Cn}", points)
    rows = []
    for category in CATEGORIES:
        rows += [
            (first, last, category) for first, last in ranges(matches(r"\p{%s}" % category, new))
        ]
    print(
        "/* Made by scripts/golden/unicode_new.py with tokenizers %s; do not edit. */"
        % tokenizers.__version__
    )
    print("/* Code points that Unicode 14 leaves unassigned: first, last, general category. */")
    print("static const unicode_range unicode_new[] = {")
    for first, last, category in sorted(rows):
        print('    { 0x%x, 0x%x, "%s" },' % (first, last, category))
    print("};\n\n/* The same for scripts. */\nstatic const unicode_range unicode_new_scripts[] = {")
    for script in SCRIPTS:
        for first, last in ranges(matches(r"\p{%s}" % script, new)):
            print('    { 0x%x, 0x%x, "%s" },' % (first, last, script))
    print(
        "};\n\n/* Left alone by the normal forms, though Unicode 14 has a class or a decomposition "
        "for them. */"
    )
    print("static const unicode_range unicode_inert[] = {")
    nfd, nfkd = normalizers.NFD().normalize_str, normalizers.NFKD().normalize_str
    inert = []
    for c in sorted(assigned_14):
        s = chr(c)
        known = (
            nfkd(s) != s
            or nfd(s) != s
            or nfd("a" + s + "\u0334") != "a" + s + "\u0334"
            or nfd("a\u0345" + s) != "a\u0345" + s
        )
        if (
            not known
            and c not in HANGUL
            and (unicodedata.combining(s) or unicodedata.decomposition(s))
        ):
            inert.append(c)
    for first, last in ranges(inert):
        print('    { 0x%x, 0x%x, "" },' % (first, last))
    print("};")


main()
