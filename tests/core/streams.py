"""Draws of the real generators, a line per seed: streams.py py|np|pcg64|pair (test_streams.c).

Doubles are printed as float.hex, so that equal means every bit. Without numpy: exit status 77.
"""
import random
import sys

kind = sys.argv[1]
if kind != "py":
    try:
        import numpy
    except ImportError:
        sys.exit(77)

seeds = [*range(200), 623, 624, 10000, 13199, 2**31, 2**32 - 1]
wide = [2**32, 2**32 + 1, 2**53 + 1, 2**63, 2**64 - 1]
limits = [1, 2, 3, 4, 5, 10, 16, 17, 100, 1000, 65536, 65537, 2**31, 2**31 + 1, 2**32 - 1]


def draws(next_double, below, shuffle):
    for limit in limits:
        yield int(below(limit))
        if next_double:
            yield float(next_double()).hex()
    items = list(range(20))
    if shuffle:
        shuffle(items)
        yield from items
    for _ in range(400):  # past the first block of 624 words
        yield float(next_double()).hex() if next_double else int(below(1000))


for seed in seeds + (wide if kind != "np" else []):
    if kind == "py":
        r = random.Random(seed)
        line = [*draws(r.random, lambda n: r.randint(0, n - 1), r.shuffle),
                r.getrandbits(1), r.getrandbits(33), r.getrandbits(64), r.randint(-5, 10**12)]
    elif kind == "np":
        r = numpy.random.RandomState(seed)
        line = draws(None, lambda n: r.randint(n, dtype="int64"), None)
    else:
        r = numpy.random.default_rng([seed, 7] if kind == "pair" else seed)
        line = draws(r.random, r.integers, None)
    print(*line)
