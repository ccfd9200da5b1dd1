"""PyTorch on the same card, as JSON lines like those of bench_step and bench_card.

    peer.py decode MODEL BATCH PROMPT NEW    transformers' generate, eager, bf16, random prompts
    peer.py head ROWS VOCAB HIDDEN           log-prob and entropy by log_softmax, in chunks
    torchrun --nproc-per-node N peer.py reduce_scatter MIB    NCCL's own sum, MIB per rank's part
"""

import json
import sys
import time

import torch


def best(run, repeat=3):
    times = []
    for _ in range(repeat + 1):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return min(times[1:])


def decode(model, batch, prompt, new):
    from transformers import AutoModelForCausalLM

    m = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).cuda().eval()
    ids = torch.randint(0, m.config.vocab_size, (batch, prompt), device="cuda")

    def generate(n):
        with torch.no_grad():
            m.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, min_new_tokens=n,
                       do_sample=True, top_k=0, pad_token_id=0)

    seconds = best(lambda: generate(new)) - best(lambda: generate(1))  # the prompt is not counted
    return {"measure": "decode", "model": model, "batch": batch,
            "value": batch * (new - 1) / seconds, "unit": "tokens/s"}


def head(rows, vocab, hidden, chunk=2048):
    x = torch.randn(rows, hidden, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(vocab, hidden, device="cuda", dtype=torch.bfloat16) * 0.02
    target = torch.arange(rows, device="cuda") % vocab

    def run():
        for at in range(0, rows, chunk):
            p = torch.log_softmax((x[at : at + chunk] @ w.t()).float(), -1)
            p.gather(1, target[at : at + chunk, None])
            -(p.exp() * p).sum(-1)

    return {"what": "log-prob and entropy from hidden states", "seconds": best(run),
            "bytes": 2 * hidden * (vocab + rows), "flop": 2 * rows * vocab * hidden}


def reduce_scatter(mib):
    import torch.distributed as dist

    dist.init_process_group("nccl")
    rank, ranks, n = dist.get_rank(), dist.get_world_size(), (mib << 20) // 4
    torch.cuda.set_device(rank)
    whole, part = torch.zeros(ranks * n, device="cuda"), torch.zeros(n, device="cuda")
    seconds = best(lambda: dist.reduce_scatter_tensor(part, whole), 10)
    dist.destroy_process_group()
    return {"what": "reduce_scatter", "ranks": ranks, "mib": mib, "seconds": seconds,
            "sent_gb_per_s": (ranks - 1) * n * 4 / seconds / 1e9} if rank == 0 else None


what, args = sys.argv[1], sys.argv[2:]
if what == "decode":
    line = decode(args[0], *map(int, args[1:]))
else:
    line = {"head": head, "reduce_scatter": reduce_scatter}[what](*map(int, args))
if line:
    print(json.dumps({"side": "torch", **line}))
