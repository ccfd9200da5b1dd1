"""Writes tests/golden/models: tiny models with random weights, and what transformers computes.

    python scripts/golden/models.py [VARIANT ...]        (torch 2.11, transformers 5.17)

The reference runs in float64 throughout. transformers itself falls back to float32 in norms and
rotary tables, so its modules see a `torch` whose float32 is float64. The deviation of the same
model in plain float32 is what a test may allow. The layout of the files is described in
tests/golden/README.md.
"""

import contextlib
import json
import pathlib
import re
import shutil
import sys
import zlib

import numpy as np
import torch
import transformers
import transformers.modeling_rope_utils
from safetensors.torch import save_file
from transformers.models.llama import modeling_llama
from transformers.models.qwen2 import modeling_qwen2
from transformers.models.qwen3 import modeling_qwen3

ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/models"
SEED = 20260117
NEW_TOKENS = 12
LENGTHS = (5, 14, 41)  # the last one exceeds every original_max_position below

QWEN2 = dict(
    model_type="qwen2",
    architectures=["Qwen2ForCausalLM"],
    hidden_act="silu",
    rms_norm_eps=1e-6,
    num_hidden_layers=2,
    max_position_embeddings=128,
)
QWEN3 = dict(QWEN2, model_type="qwen3", architectures=["Qwen3ForCausalLM"])
LLAMA = dict(QWEN2, model_type="llama", architectures=["LlamaForCausalLM"], rms_norm_eps=1e-5)


def sizes(vocab, hidden, inter, heads, kv, head_dim=None):
    d = dict(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=inter,
        num_attention_heads=heads,
        num_key_value_heads=kv,
    )
    return d if head_dim is None else dict(d, head_dim=head_dim)


# name: (config.json as written, options). config.json has two dialects: the old one has rope_theta,
# rope_scaling and torch_dtype, the new one rope_parameters and dtype.
VARIANTS = {
    "qwen2_tied": (
        dict(
            QWEN2,
            **sizes(131, 48, 80, 4, 2),
            tie_word_embeddings=True,
            rope_theta=1000000.0,
            rope_scaling=None,
            sliding_window=8,
            use_sliding_window=False,
            max_window_layers=1,
            torch_dtype="float32",
        ),
        {},
    ),
    "qwen2_untied": (
        dict(
            QWEN2,
            **sizes(117, 32, 72, 4, 4),
            tie_word_embeddings=False,
            dtype="float32",
            rope_parameters=dict(rope_type="default", rope_theta=50000.0),
        ),
        {},
    ),
    "qwen2_window": (
        dict(
            QWEN2,
            **sizes(100, 32, 48, 4, 2),
            use_sliding_window=True,
            sliding_window=8,
            max_window_layers=1,
            rope_theta=10000.0,
            torch_dtype="float32",
        ),
        {},
    ),
    "qwen2_bf16": (
        dict(
            QWEN2,
            **sizes(131, 48, 80, 4, 2),
            tie_word_embeddings=True,
            dtype="bfloat16",
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0),
        ),
        dict(head_in_file=True),
    ),
    "qwen3_untied": (
        dict(
            QWEN3,
            **sizes(122, 40, 56, 4, 2, 16),
            attention_bias=False,
            tie_word_embeddings=False,
            rope_theta=1000000,
            rope_scaling=None,
            sliding_window=None,
            torch_dtype="float32",
        ),
        {},
    ),
    "qwen3_tied_bias": (
        dict(
            QWEN3,
            **sizes(103, 36, 60, 3, 1, 20),
            attention_bias=True,
            tie_word_embeddings=True,
            dtype="float32",
            rope_parameters=dict(rope_type="default", rope_theta=10000.0),
        ),
        {},
    ),
    "qwen3_yarn": (
        dict(
            QWEN3,
            **sizes(110, 32, 48, 4, 2, 16),
            tie_word_embeddings=True,
            dtype="float32",
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=100000.0,
                factor=4.0,
                attention_factor=1.25,
                original_max_position_embeddings=32,
                beta_fast=16.0,
                beta_slow=2.0,
                truncate=False,
            ),
        ),
        {},
    ),
    "llama_plain": (
        {
            k: v
            for k, v in dict(LLAMA, **sizes(128, 32, 64, 4, 4)).items()
            if k not in ("num_key_value_heads", "rms_norm_eps", "hidden_act")
        },
        {},
    ),
    "llama_gqa_9_3": (
        dict(
            LLAMA,
            **sizes(101, 36, 50, 9, 3, 12),
            tie_word_embeddings=True,
            rope_theta=100000.0,
            rope_interleaved=False,
            torch_dtype="float32",
        ),
        {},
    ),
    "llama_biases": (
        dict(
            LLAMA,
            **sizes(97, 40, 44, 5, 1),
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=False,
            dtype="float32",
            rope_parameters=dict(rope_type="default", rope_theta=10000.0),
        ),
        {},
    ),
    "llama_llama3": (
        dict(
            LLAMA,
            **sizes(120, 32, 64, 2, 1, 32),
            tie_word_embeddings=True,
            rope_theta=500000.0,
            torch_dtype="float32",
            rope_scaling=dict(
                rope_type="llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=16,
            ),
        ),
        {},
    ),
    "llama_llama3_new": (
        dict(
            LLAMA,
            **sizes(120, 32, 48, 4, 2),
            tie_word_embeddings=True,
            dtype="float32",
            rope_parameters=dict(
                rope_type="llama3",
                rope_theta=10000.0,
                factor=32.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=24,
            ),
        ),
        {},
    ),
    "llama_linear": (
        dict(
            LLAMA,
            **sizes(108, 32, 48, 4, 2),
            rope_theta=10000.0,
            rope_scaling=dict(type="linear", factor=2.5),
            torch_dtype="float32",
        ),
        {},
    ),
    "llama_dynamic": (
        dict(
            LLAMA,
            **sizes(108, 32, 48, 4, 2),
            max_position_embeddings=24,
            rope_theta=10000.0,
            rope_scaling=dict(type="dynamic", factor=2.0),
            torch_dtype="float32",
        ),
        {},
    ),
    "llama_yarn": (
        dict(
            LLAMA,
            **sizes(108, 32, 48, 4, 2, 16),
            max_position_embeddings=64,
            rope_theta=10000.0,
            rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16),
            torch_dtype="float32",
        ),
        {},
    ),
    "llama_yarn_mscale": (
        dict(
            LLAMA,
            **sizes(108, 32, 48, 4, 2),
            max_position_embeddings=64,
            dtype="float32",
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=10000.0,
                factor=4.0,
                mscale=1.0,
                mscale_all_dim=0.8,
                original_max_position_embeddings=16,
            ),
        ),
        {},
    ),
    "llama_f16": (
        dict(
            LLAMA,
            **sizes(116, 36, 52, 3, 3),
            tie_word_embeddings=False,
            rope_theta=10000.0,
            torch_dtype="float16",
        ),
        {},
    ),
    "llama_sharded": (
        dict(
            LLAMA,
            **sizes(116, 36, 52, 3, 3),
            tie_word_embeddings=False,
            rope_theta=10000.0,
            torch_dtype="float32",
        ),
        dict(shards=3),
    ),
}


class Wide:
    """A stand-in for the module torch whose single precision is double."""

    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def precision(dtype):
    """Within this context transformers computes in dtype throughout."""
    if dtype == torch.float32:
        yield
        return
    modules = [transformers.modeling_rope_utils, modeling_llama, modeling_qwen2, modeling_qwen3]
    plain = torch.Tensor.float
    for m in modules:
        m.torch = Wide()
    torch.Tensor.float = lambda self, *a, **k: self.double()
    try:
        yield
    finally:
        torch.Tensor.float = plain
        for m in modules:
            m.torch = torch


def load(path, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=dtype, attn_implementation="sdpa"
    )
    assert model.model.rotary_emb.inv_freq.dtype == dtype
    return model.eval()


def draw(shape, name, rng, vocab, hidden):
    """Random values for a tensor: none that would hide that the tensor is ignored."""
    if name.endswith("norm.weight"):
        return rng.uniform(0.4, 1.6, shape)
    if name.endswith("bias"):
        return rng.normal(0, 0.4, shape)
    if name.endswith("embed_tokens.weight") or name.endswith("lm_head.weight"):
        return rng.normal(0, 0.35, shape)
    return rng.normal(0, 1.3 / np.sqrt(shape[-1]), shape)


def write_model(path, config, options, rng):
    dtype = getattr(torch, config.get("dtype", config.get("torch_dtype", "float32")))
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.from_pretrained(path)
    )
    tensors = {}
    for name, p in model.named_parameters():
        value = draw(tuple(p.shape), name, rng, config["vocab_size"], config["hidden_size"])
        tensors[name] = torch.from_numpy(np.asarray(value, np.float32)).to(dtype)
    if options.get("head_in_file"):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    shards = options.get("shards", 1)
    if shards == 1:
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        return
    names = sorted(tensors)
    where = {
        n: "model-%05d-of-%05d.safetensors" % (i * shards // len(names) + 1, shards)
        for i, n in enumerate(names)
    }
    for file in sorted(set(where.values())):
        save_file(
            {n: tensors[n] for n in names if where[n] == file},
            path / file,
            metadata={"format": "pt"},
        )
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (path / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def run(path, dtype, rows):
    """Log-probs, entropies, the gradient of the loss, and the loss, over rows of (ids, a, b).

    Each row gets a newly loaded model, because dynamic scaling remembers the longest sequence.
    """
    log_probs, entropies, grads, loss_sum = [], [], {}, 0.0
    with precision(dtype):
        for ids, a, b in rows:
            model = load(path, dtype)
            x = torch.tensor([ids])
            log_p = torch.log_softmax(model(input_ids=x, use_cache=False).logits[0, :-1], -1)
            taken = log_p.gather(-1, x[0, 1:, None])[:, 0]
            entropy = -(log_p.exp() * log_p).sum(-1)
            loss = (
                torch.tensor(a, dtype=dtype) * taken + torch.tensor(b, dtype=dtype) * entropy
            ).sum()
            loss.backward()
            loss_sum += loss.item()
            log_probs.append(taken.detach())
            entropies.append(entropy.detach())
            for name, p in model.named_parameters():
                grads[name] = grads.get(name, 0) + p.grad
    return log_probs, entropies, grads, loss_sum


def greedy_gap(model, ids, n):
    """n greedy tokens without a cache, each from a forward pass over the whole sequence.

    Also gives the smallest distance between the best logit and the second best.
    """
    ids, out, gap = list(ids), [], np.inf
    for _ in range(n):
        with torch.no_grad():
            top = (
                model(input_ids=torch.tensor([ids]), use_cache=False, logits_to_keep=1)
                .logits[0, -1]
                .topk(2)
            )
        gap = min(gap, (top.values[0] - top.values[1]).item())
        out.append(top.indices[0].item())
        ids.append(out[-1])
    return out, gap


def greedy(path, dtype, rows):
    with precision(dtype):
        all = [greedy_gap(load(path, dtype), ids, NEW_TOKENS) for ids, _, _ in rows]
    return [tokens for tokens, _ in all], min(gap for _, gap in all)


def cached_greedy(path, dtype, rows):
    """Greedy tokens of model.generate: cached keys keep their first rotation."""
    out = []
    with precision(dtype), torch.no_grad():
        for ids, _, _ in rows:
            x = torch.tensor(
                [ids]
            )  # with a mask, as the id of the pad token is an ordinary token here
            y = load(path, dtype).generate(
                x,
                attention_mask=torch.ones_like(x),
                do_sample=False,
                max_new_tokens=NEW_TOKENS,
                eos_token_id=None,
                pad_token_id=0,
            )
            out.append(y[0, len(ids) :].tolist())
    return out


def deviation(xs, ys):
    return max((x.double() - y.double()).abs().max().item() for x, y in zip(xs, ys))


def make(name):
    config, options = VARIANTS[name]
    path = ROOT / name
    for attempt in range(50):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        seed = SEED + zlib.crc32(name.encode()) % 1000003 + attempt
        rng = np.random.default_rng(seed)
        write_model(path, config, options, rng)
        rows = []
        for n in LENGTHS:
            ids = rng.integers(0, config["vocab_size"], n).tolist()
            a, b = (rng.integers(-64, 65, (2, n - 1)) / 64).tolist()
            rows.append((ids, a, b))
        tokens, gap = greedy(path, torch.float64, rows)
        if gap > 2e-3 and all(len(set(t)) > 3 for t in tokens):
            break
    else:
        raise SystemExit("%s: no seed with clear greedy choices" % name)
    log_probs, entropies, grads, loss = run(path, torch.float64, rows)
    log_probs32, entropies32, grads32, loss32 = run(path, torch.float32, rows)
    assert greedy(path, torch.float32, rows)[0] == tokens
    cached = cached_greedy(path, torch.float64, rows)
    golden = {
        "metadata": {
            "command": "python scripts/golden/models.py " + name,
            "seed": seed,
            "torch": torch.__version__.split("+")[0],
            "transformers": transformers.__version__,
            "numpy": np.__version__,
        },
        "f32_dev": {
            "log_probs": deviation(log_probs32, log_probs),
            "entropies": deviation(entropies32, entropies),
            "loss": abs(loss32 - loss),
            "grads": {n: (grads32[n].double() - g).abs().max().item() for n, g in grads.items()},
        },
        "loss": loss,
        "greedy_gap": gap,
        "sequences": [
            {
                "input_ids": ids,
                "a": a,
                "b": b,
                "log_probs": lp.tolist(),
                "entropies": e.tolist(),
                "greedy": t,
            }
            | ({"greedy_cached": c} if c != t else {})
            for (ids, a, b), lp, e, t, c in zip(rows, log_probs, entropies, tokens, cached)
        ],
    }
    assert golden["f32_dev"]["log_probs"] < 1e-4, golden["f32_dev"]
    text = json.dumps(golden, indent=1)
    text = re.sub(r"\[[^\[\]{}]*\]", lambda m: " ".join(m.group().split()), text)
    (path / "golden.json").write_text(text + "\n")
    save_file(
        {n: g.float().contiguous() for n, g in grads.items()},
        path / "grads.safetensors",
        metadata={"made_by": json.dumps(golden["metadata"])},
    )
    for file in path.iterdir():
        file.chmod(0o644)
    dev = golden["f32_dev"]
    rel = max(d / grads[n].abs().max().item() for n, d in dev["grads"].items())
    print(
        "%-18s attempt %d gap %.4f  f32: log-prob %.1e entropy %.1e grad %.1e (of largest)  "
        "entropies %.2f..%.2f%s"
        % (
            name,
            attempt,
            gap,
            dev["log_probs"],
            dev["entropies"],
            rel,
            min(e.min().item() for e in entropies),
            max(e.max().item() for e in entropies),
            "  cached greedy differs" if cached != tokens else "",
        ),
        flush=True,
    )


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for name in sys.argv[1:] or VARIANTS:
        make(name)


if __name__ == "__main__":
    main()
