"""One update, tokens per second: transformers' model, log-probs of every token, a policy-gradient
loss, backward, clipping, AdamW.

    python benchmarks/peers/update.py --model smol --rows 32 --tokens 79 --kept [--dtype bfloat16]

bfloat16: autocast.
"""

from common import emit, load_model, options, start, timed


def main():
    p = options(__doc__)
    p.add_argument("--rows", type=int, default=128)
    p.add_argument("--tokens", type=int, default=96, help="in each row")
    p.add_argument(
        "--micro-rows", type=int, default=0, help="rows of one forward and backward (0: all)"
    )
    args = start(p)
    import torch

    model = load_model(args).train()
    ids = torch.randint(0, min(model.config.vocab_size, 500), (args.rows, args.tokens))
    advantage = torch.randn(args.rows, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    step = args.micro_rows or args.rows

    def update():
        for first in range(0, args.rows, step):
            x = ids[first : first + step]
            with torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bfloat16"):
                logits = model(input_ids=x, use_cache=False).logits[:, :-1]
            log_p = torch.log_softmax(logits.float(), -1).gather(-1, x[:, 1:, None])[..., 0]
            ratio = torch.exp(log_p - log_p.detach())
            (
                -(ratio * advantage[first : first + step]).sum() / (args.rows * (args.tokens - 1))
            ).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=not args.kept)

    emit(
        "update",
        "tokens/s",
        args,
        timed(update, args.repeat),
        lambda t: args.rows * args.tokens / t,
        model=args.model,
        dtype=args.dtype,
        rows=args.rows,
        tokens=args.tokens,
        micro_rows=step,
        peer="torch, transformers' model",
    )


main()
