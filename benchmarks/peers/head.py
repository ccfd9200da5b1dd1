"""Log-prob of the taken token and exact entropy from logits [rows, vocab], microseconds per row.

python benchmarks/peers/head.py --rows 1024 --vocab 151936 [--kept] [--compile]
"""

from common import emit, options, start, timed


def entropy_and_log_prob(logits, ids):
    import torch

    log_p = torch.log_softmax(logits, -1)
    return log_p.gather(-1, ids[:, None])[:, 0], -(log_p.exp() * log_p).sum(-1)


def main():
    p = options(__doc__, model=False)
    p.add_argument("--rows", type=int, default=1024)
    p.add_argument("--vocab", type=int, default=151936)
    p.add_argument("--compile", action="store_true")
    args = start(p)
    import torch

    logits = torch.empty(args.rows, args.vocab).normal_(0, 3)
    ids = torch.randint(0, args.vocab, (args.rows,))
    function = torch.compile(entropy_and_log_prob) if args.compile else entropy_and_log_prob
    with torch.inference_mode():
        times = timed(lambda: function(logits, ids), args.repeat)
    emit(
        "entropy_log_prob",
        "us/token",
        args,
        times,
        lambda t: 1e6 * t / args.rows,
        rows=args.rows,
        vocab=args.vocab,
        peer="torch compiled" if args.compile else "torch eager",
    )


main()
