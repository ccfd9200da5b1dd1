"""libtorch's product y = x Wt on the shapes of SmolLM2-135M (or others), GFLOP/s.

    python benchmarks/peers/mm.py --m 16 64 1024 [--shapes 576x576 1536x576 ...]

A shape is N x K: outputs x inputs.

Every repetition takes another copy of the weight out of 200 MB, as benchmarks/linear.c does: a
decode step reads it from memory.
"""

import time

from common import emit, options, start

SMOL = ["576x576", "192x576", "1536x576", "576x1536", "49152x576"]


def main():
    p = options(__doc__, model=False)
    p.add_argument("--m", type=int, nargs="+", default=[16, 64, 1024])
    p.add_argument("--shapes", nargs="+", default=SMOL)
    p.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    p.add_argument("--seconds", type=float, default=0.2, help="of each measure")
    args = start(p)
    import torch

    dtype = getattr(torch, args.dtype)
    for shape in args.shapes:
        n, k = map(int, shape.split("x"))
        one = torch.randn(n, k).to(dtype)
        copies = [
            one.clone()
            for _ in range(max(1, min(256, (200 << 20) // (one.numel() * one.element_size()))))
        ]
        for m in args.m:
            x, y = torch.randn(m, k).to(dtype), torch.empty(m, n, dtype=dtype)
            times, begin, last = [], time.perf_counter(), 0.0
            while len(times) < 4 or last - begin < args.seconds:
                w = copies[len(times) % len(copies)].t()
                first = time.perf_counter()
                torch.mm(x, w, out=y)
                last = time.perf_counter()
                times.append(last - first)
            times = sorted(times[1:])
            emit(
                "mm",
                "GFLOP/s",
                args,
                [times[0], times[len(times) // 2]],
                lambda t: 2e-9 * m * n * k / t,
                m=m,
                n=n,
                k=k,
                dtype=args.dtype,
                best_us=1e6 * times[0],
                median_us=1e6 * times[len(times) // 2],
                peer="libtorch mm",
            )


main()
