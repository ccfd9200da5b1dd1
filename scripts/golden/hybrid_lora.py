"""Adds to tests/golden/lora.json what PEFT computes beside models with gated delta nets.

    python scripts/golden/hybrid_lora.py            (torch 2.11, transformers 5.17, peft 0.21.2)

Bases are tests/golden/models/qwen3_5_*; adapters with random A and B and all expected tensors go to
tests/golden/lora/NAME. The reference runs in float64, as in models.py. The cases' names begin with
qwen3_5: a second run replaces them. All random numbers come from SEED.
"""

import contextlib
import json
import pathlib
import shutil

import numpy as np
import peft
import safetensors.torch
import torch
import transformers
from transformers.models.qwen3_5 import modeling_qwen3_5

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/golden"
SEED = 43
LENGTHS = 2, 17, 71  # transformers works in chunks of 64
NET = ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"]
# name: (base, words of LoraConfig, whether it has cases of gradients, of a merge)
ADAPTERS = {
    "qwen3_5_all": ("qwen3_5_interval", dict(r=4, lora_alpha=6, target_modules="all-linear")),
    "qwen3_5_nets": (
        "qwen3_5_wrapped",
        dict(
            r=3,
            lora_alpha=7,
            use_rslora=True,
            target_modules=NET + ["q_proj"],
            rank_pattern={"in_proj_b": 5},
            alpha_pattern={r"layers\.1\.linear_attn\.out_proj": 2},
        ),
    ),
}
TARGETS = {
    "all_linear": dict(target_modules="all-linear"),
    "suffixes": dict(target_modules=["in_proj_a", "linear_attn.out_proj", "q_proj"]),
    "expression": dict(target_modules=r".*linear_attn\.in_proj_[ab]"),
    "of_one_layer": dict(target_modules=["in_proj_qkv", "in_proj_z"], layers_to_transform=[1]),
    "without_z": dict(target_modules="all-linear", exclude_modules=["in_proj_z", "mlp.up_proj"]),
    "qkv_alone_ends_nothing": dict(target_modules=["proj_qkv"]),
}


class Wide:
    """A stand-in for the module torch whose single precision is double."""

    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def in_double():
    plain = torch.Tensor.float
    modeling_qwen3_5.torch = Wide()
    torch.Tensor.float = lambda self, *a, **k: self.double()
    try:
        yield
    finally:
        torch.Tensor.float = plain
        modeling_qwen3_5.torch = torch


def open_base(base):
    """Each tensor as the file has it, then in double."""
    path = GOLDEN / "models" / base
    with in_double():
        return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64).eval()


def run(model, ids):
    """Log-probs and entropies of each sequence but its first token."""
    log_probs, entropies = [], []
    for row in ids:
        with in_double():
            logits = model(torch.tensor([row]), use_cache=False).logits[0, :-1]
        p = torch.log_softmax(logits, -1)
        log_probs.append(p.gather(1, torch.tensor(row[1:])[:, None])[:, 0])
        entropies.append(-(p.exp() * p).sum(-1))
    return log_probs, entropies


def numbers(rows):
    return [[float("%.12g" % x) for x in row.tolist()] for row in rows]


def config_of(words):
    return peft.LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **words)


def make(name, base, words, rng):
    folder = GOLDEN / "lora" / name
    shutil.rmtree(folder, ignore_errors=True)
    model = peft.get_peft_model(open_base(base), config_of(words))
    for tensor, p in sorted(model.named_parameters()):
        if "lora_" in tensor:
            spread = 1 / np.sqrt(p.shape[1]) if "lora_A" in tensor else 0.15
            value = np.float32(rng.normal(0, spread, tuple(p.shape)))
            p.data = torch.from_numpy(value).double()
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    file = folder / "adapter_model.safetensors"
    tensors = {k: v.float().contiguous() for k, v in safetensors.torch.load_file(file).items()}
    safetensors.torch.save_file(tensors, file, {"format": "pt"})
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = base
    config["target_modules"] = sorted(config["target_modules"])
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1, sort_keys=True))
    return model


def inputs_of(name, base, rng):
    ids = [[int(x) for x in rng.integers(0, 250, n)] for n in LENGTHS]
    c = [[round(float(x), 6) for x in rng.normal(0.4, 0.8, n - 1)] for n in LENGTHS]
    return dict(model="models/" + base, adapter="lora/" + name, input_ids=ids), c


def cases_of(name, base, words, rng):
    model = make(name, base, words, rng)
    inputs, c = inputs_of(name, base, rng)
    ids = inputs["input_ids"]
    with torch.no_grad():
        log_probs, entropies = run(model, ids)
        with model.disable_adapter():
            plain, _ = run(model, ids)
    moved = max(float((a - b).abs().max()) for a, b in zip(log_probs, plain))
    assert moved > 0.5, moved
    yield dict(
        function="lora_log_probs",
        name=name,
        inputs=inputs,
        expected=dict(
            log_probs=numbers(log_probs),
            entropies=numbers(entropies),
            base_log_probs=numbers(plain),
        ),
        tolerance=2e-4,
        moved=moved,
    )
    got, _ = run(model, ids)
    loss = sum((torch.tensor(w, dtype=torch.float64) * x).sum() for w, x in zip(c, got))
    loss.backward()
    gradients = {
        n.replace(".default", ""): p.grad for n, p in model.named_parameters() if "lora_" in n
    }
    file = "lora/%s/expected_gradients.safetensors" % name
    safetensors.torch.save_file(
        {k: v.float().contiguous() for k, v in gradients.items()}, GOLDEN / file, {"format": "pt"}
    )
    norm = float(sum((g * g).sum() for g in gradients.values()) ** 0.5)
    yield dict(
        function="lora_gradients",
        name=name,
        inputs=dict(inputs, c=c),
        expected=dict(loss=loss.item(), gradients=file, norm=norm),
        tolerance_of_largest=2e-4,
    )
    if base != "qwen3_5_wrapped":
        return
    before = {k: v.clone() for k, v in open_base(base).state_dict().items()}
    merged = model.merge_and_unload().state_dict()
    changed = {
        k.replace("model.", "model.language_model.", 1): v.float().contiguous()
        for k, v in merged.items()
        if not torch.equal(v, before[k])
    }
    file = "lora/%s/expected_merged.safetensors" % name
    safetensors.torch.save_file(changed, GOLDEN / file, {"format": "pt"})
    yield dict(
        function="lora_merge",
        name=name,
        inputs=inputs,
        expected=dict(
            weights=file, others="unchanged", dtype="fp32", log_probs=numbers(log_probs)
        ),
        tolerance=1e-6,
        tolerance_log_probs=2e-4,
    )


def targets_of(name, words):
    words = dict(r=4, lora_alpha=6, **words)
    expected = {}
    try:
        model = peft.get_peft_model(open_base("qwen3_5_interval"), config_of(words))
        found = [n for n, m in model.base_model.model.named_modules() if hasattr(m, "lora_A")]
        expected["modules"] = [[n, 4, 1.5] for n in sorted(found)]
    except ValueError as e:
        expected["error"] = True
        expected["peft_says"] = str(e).splitlines()[0]
    inputs = dict(model="models/qwen3_5_interval", config=words)
    return dict(function="lora_targets", name=name, inputs=inputs, expected=expected)


def named_otherwise():
    """Names that PEFT gives the layers in Qwen3_5ForConditionalGeneration."""
    inputs = dict(model="models/qwen3_5_wrapped", adapter="lora/qwen3_5_nets")
    inputs["rename"] = {"model.layers.": "model.language_model.layers."}
    inputs["config"] = dict(alpha_pattern={r"layers\.1\.linear_attn\.out_proj": 2})
    return dict(
        function="lora_open",
        name="qwen3_5_for_conditional_generation",
        inputs=inputs,
        expected=dict(opens=True),
    )


def main():
    rng = np.random.default_rng(SEED)
    path = GOLDEN / "lora.json"
    header, *lines = path.read_text().splitlines()
    lines = [line.removesuffix("]}").rstrip(", ") for line in lines]
    kept = [line for line in lines if '"name": "qwen3_5' not in line]
    new = [c for name, (b, w) in ADAPTERS.items() for c in cases_of(name, b, w, rng)]
    new += [targets_of("qwen3_5/" + name, words) for name, words in TARGETS.items()]
    new.append(named_otherwise())
    path.write_text(header + "\n" + ", \n".join(kept + [json.dumps(c) for c in new]) + "]}\n")


if __name__ == "__main__":
    main()
