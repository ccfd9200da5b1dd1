"""From hidden states to the log-prob of the taken token and the exact entropy, microseconds per row,
as an eager trainer computes them: the logits of all rows, log_softmax, gather, and for the update
autograd back to the hidden states and the weight of the head.

python benchmarks/peers/head.py --rows 1024 --case smol [--backward] [--kept] [--compile]
"""

from common import emit, options, start, timed

# vocabulary, width: the heads of SmolLM2-135M and Qwen2.5-0.5B
CASES = {"smol": (49152, 576), "qwen": (151936, 896)}


def log_prob_and_entropy(hidden, weight, ids):
    import torch

    log_p = torch.log_softmax(hidden @ weight.T, -1)
    return log_p.gather(-1, ids[:, None])[:, 0], -(log_p.exp() * log_p).sum(-1)


def main():
    p = options(__doc__, model=False)
    p.add_argument("--rows", type=int, default=1024)
    p.add_argument("--case", default="smol", choices=CASES)
    p.add_argument("--backward", action="store_true", help="gradients of both as well")
    p.add_argument("--compile", action="store_true")
    args = start(p)
    import torch

    vocab, width = CASES[args.case]
    hidden = torch.randn(args.rows, width).requires_grad_(args.backward)
    weight = (0.1 * torch.randn(vocab, width)).requires_grad_(args.backward)
    ids = torch.arange(args.rows) % vocab
    function = torch.compile(log_prob_and_entropy) if args.compile else log_prob_and_entropy
    out = {}

    def forward():
        with torch.inference_mode():
            out["entropy"] = function(hidden, weight, ids)[1]

    def both():  # the weight's gradient adds up, as over the micro-batches of an update
        hidden.grad = None
        log_prob, entropy = function(hidden, weight, ids)
        (0.01 * log_prob + 0.001 * entropy).sum().backward()
        out["entropy"] = entropy.detach()

    times = timed(both if args.backward else forward, args.repeat)
    emit(
        "head, backward" if args.backward else "head",
        "us/token",
        args,
        times,
        lambda t: 1e6 * t / args.rows,
        case=args.case,
        rows=args.rows,
        check=float(out["entropy"].mean()),
        peer="torch compiled" if args.compile else "torch eager",
    )


main()
