"""Decoding, tokens per second: PyTorch without a framework around it. Fused qkv and gate-up
products, a static key cache, greedy choice; the prompt's own pass is not counted.

    python benchmarks/peers/decode.py --model smol --batch 1 16 64 --prompt 32 --new 64
                                      [--dtype bfloat16] [--compile] [--check]
"""

import time

from common import emit, load_model, options, start


class Lean:
    """A Qwen2 or Llama decoder over one cache [B][kv heads][length][head dim] a layer, all
    sequences equally long."""

    def __init__(self, model, batch, length, dtype, compiled):
        import torch

        c = model.config
        self.heads, self.kv = c.num_attention_heads, c.num_key_value_heads
        self.dim = getattr(c, "head_dim", None) or c.hidden_size // self.heads
        self.eps, self.dtype = c.rms_norm_eps, dtype
        w = {k: v.detach().to(dtype) for k, v in model.state_dict().items()}
        self.embed = w["model.embed_tokens.weight"]
        self.head = self.embed if c.tie_word_embeddings else w["lm_head.weight"]
        self.norm = w["model.norm.weight"]
        self.layers = []
        for i in range(c.num_hidden_layers):
            p = "model.layers.%d." % i
            join = lambda names, kind: (
                torch.cat([w[p + n + kind] for n in names]) if p + names[0] + kind in w else None
            )
            qkv = ["self_attn.%s_proj" % n for n in "qkv"]
            self.layers.append(
                (
                    w[p + "input_layernorm.weight"],
                    join(qkv, ".weight"),
                    join(qkv, ".bias"),
                    w[p + "self_attn.o_proj.weight"],
                    w[p + "post_attention_layernorm.weight"],
                    join(["mlp.gate_proj", "mlp.up_proj"], ".weight"),
                    w[p + "mlp.down_proj.weight"],
                )
            )
        self.k = [torch.zeros(batch, self.kv, length, self.dim, dtype=dtype) for _ in self.layers]
        self.v = [torch.zeros_like(k) for k in self.k]
        angle = torch.arange(length)[:, None] * model.model.rotary_emb.inv_freq[None]
        angle = torch.cat([angle, angle], -1)
        self.cos, self.sin = angle.cos().to(dtype), angle.sin().to(dtype)
        self.block = torch.compile(self.step, dynamic=True) if compiled else self.step

    def rotate(self, x, cos, sin):
        import torch

        half = self.dim // 2
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def step(self, ids, begin, end):
        """ids [B, end - begin] at positions begin to end: the logits of the last one."""
        import torch.nn.functional as F

        b, n = ids.shape
        x = F.embedding(ids, self.embed)
        cos, sin = self.cos[begin:end], self.sin[begin:end]
        for i, (norm1, qkv_w, qkv_b, o_w, norm2, gate_up, down) in enumerate(self.layers):
            qkv = (
                F.linear(F.rms_norm(x, (x.shape[-1],), norm1, self.eps), qkv_w, qkv_b)
                .view(b, n, -1, self.dim)
                .transpose(1, 2)
            )
            q, k, v = qkv.split([self.heads, self.kv, self.kv], 1)
            self.k[i][:, :, begin:end] = self.rotate(k, cos, sin)
            self.v[i][:, :, begin:end] = v
            y = F.scaled_dot_product_attention(
                self.rotate(q, cos, sin),
                self.k[i][:, :, :end],
                self.v[i][:, :, :end],
                is_causal=n > 1,
                enable_gqa=True,
            )
            x = x + F.linear(y.transpose(1, 2).reshape(b, n, -1), o_w)
            gate, up = F.linear(F.rms_norm(x, (x.shape[-1],), norm2, self.eps), gate_up).chunk(
                2, -1
            )
            x = x + F.linear(F.silu(gate) * up, down)
        return F.linear(F.rms_norm(x[:, -1], (x.shape[-1],), self.norm, self.eps), self.head)

    def run(self, ids, new):
        """Gives the tokens and the seconds of the steps behind the prompt's."""
        import torch

        with torch.inference_mode():
            out = [self.step(ids, 0, ids.shape[1]).argmax(-1)]
            begin = time.perf_counter()
            for t in range(ids.shape[1], ids.shape[1] + new - 1):
                out.append(self.block(out[-1][:, None], t, t + 1).argmax(-1))
            return torch.stack(out, 1), time.perf_counter() - begin


def main():
    p = options(__doc__)
    p.add_argument("--batch", type=int, nargs="+", default=[1, 16, 64])
    p.add_argument("--prompt", type=int, default=32)
    p.add_argument("--new", type=int, default=64)
    p.add_argument("--compile", action="store_true")
    p.add_argument(
        "--check", action="store_true", help="compare the tokens with transformers' first"
    )
    args = start(p)
    import torch

    model, dtype = load_model(args), getattr(torch, args.dtype)
    vocab = model.config.vocab_size
    for batch in args.batch:
        ids = torch.randint(0, min(vocab, 500), (batch, args.prompt))
        lean = Lean(model, batch, args.prompt + args.new, dtype, args.compile)
        if args.check:
            want = model.to(dtype).generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=args.new,
                min_new_tokens=args.new,
                eos_token_id=None,
                pad_token_id=0,
            )[:, args.prompt :]
            same = (lean.run(ids, args.new)[0] == want).float().mean().item()
            print(
                "# batch %d: %.1f %% of the tokens equal transformers'" % (batch, 100 * same),
                flush=True,
            )
        lean.run(ids, args.new)
        times = [lean.run(ids, args.new)[1] for _ in range(args.repeat)]
        emit(
            "decode",
            "tokens/s",
            args,
            times,
            lambda t: batch * (args.new - 1) / t,
            model=args.model,
            dtype=args.dtype,
            batch=batch,
            prompt=args.prompt,
            new=args.new,
            peer="torch static cache" + (", compiled" if args.compile else ""),
        )


main()
