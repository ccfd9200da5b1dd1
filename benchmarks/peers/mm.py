"""libtorch's product y = x Wt on the shapes of SmolLM2-135M (or others), GFLOP/s.

    python benchmarks/peers/mm.py --m 16 64 1024 [--shapes 576x576 1536x576 ...]       (a shape is N x K: outputs x inputs)
"""
from common import best, emit, options, start

SMOL = ["576x576", "192x576", "960x576", "1536x576", "3072x576", "576x1536", "49152x576"]


def main():
    p = options(__doc__, model=False)
    p.add_argument("--m", type=int, nargs="+", default=[16, 64, 1024])
    p.add_argument("--shapes", nargs="+", default=SMOL)
    p.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    args = start(p)
    import torch
    dtype = getattr(torch, args.dtype)
    for shape in args.shapes:
        n, k = map(int, shape.split("x"))
        w = torch.randn(n, k).to(dtype)
        for m in args.m:
            x, y = torch.randn(m, k).to(dtype), torch.empty(m, n, dtype=dtype)
            flops = 2 * m * n * k
            times = max(1, int(2e9 / flops))

            def run():
                for _ in range(times):
                    torch.mm(x, w.t(), out=y)
            seconds = best(run, args.repeat) / times
            emit("mm", flops / seconds * 1e-9, "GFLOP/s", args, m=m, n=n, k=k, dtype=args.dtype, seconds=seconds, peer="libtorch mm")


main()
