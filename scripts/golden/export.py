#!/usr/bin/env python3
"""Expected contents of GGUF files: tests/golden/gguf.json.

    python3 scripts/golden/export.py     needs gguf 0.19.0, numpy, safetensors and tokenizers

Tensors: their names by gguf's table, rows of q and k in llama.cpp's order, numbers quantised by
gguf's own quants.py; of each its ggml type, its sizes (fastest first) and the 64-bit FNV-1a of its
bytes. Tokens and merges: from the tokenizers library and the merges of tokenizer.json. A model's
directory is a model of tests/golden/models with the tokenizer of tests/golden/tokenizer.
"""
import json
import math
import pathlib

import gguf
import numpy as np
import tokenizers
from gguf.tensor_mapping import get_tensor_name_map
from safetensors import safe_open

ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden"
TYPES = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16,
         "bf16": gguf.GGMLQuantizationType.BF16, "q8_0": gguf.GGMLQuantizationType.Q8_0}
ARCH = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2,
        "qwen3": gguf.MODEL_ARCH.QWEN3}


def fnv1a(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def widened(file, key):
    """numpy has no bf16: its bits are the upper half of an f32."""
    with safe_open(file, "np") as s:
        if s.get_slice(key).get_dtype() != "BF16":
            return s.get_tensor(key).astype(np.float32)
    raw = pathlib.Path(file).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    entry = json.loads(raw[8:8 + size])[key]
    begin, end = entry["data_offsets"]
    bits = np.frombuffer(raw[8 + size + begin:8 + size + end], np.uint16).astype(np.uint32) << 16
    return bits.view(np.float32).reshape(entry["shape"])


def neighbours(w, heads):
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(
        w.shape)


def llama3_factors(config):
    r = config["rope_scaling"]
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    f32 = np.float32
    theta = config.get("rope_theta", 10000.0)
    wavelengths = [f32(2 * math.pi) / (f32(1) / f32(f32(theta) ** (f32(i) / f32(dim))))
                   for i in range(0, dim, 2)]
    low, high, factor = (f32(r[k]) for k in ("low_freq_factor", "high_freq_factor", "factor"))
    length = f32(r["original_max_position_embeddings"])
    out = []
    for wave in wavelengths:
        if wave < length / high:
            out.append(f32(1))
        elif wave > length / low:
            out.append(factor)
        else:
            smooth = (length / wave - low) / (high - low)
            out.append(f32(1) / ((f32(1) - smooth) / factor + smooth))
    return np.array(out, np.float32)


def tensors_of(folder, config, kind):
    names = get_tensor_name_map(ARCH[config["model_type"]], config["num_hidden_layers"])
    out = {}

    def add(name, w):
        q = TYPES[kind] if w.ndim == 2 else gguf.GGMLQuantizationType.F32
        if q == gguf.GGMLQuantizationType.Q8_0 and w.shape[-1] % 32:
            q = gguf.GGMLQuantizationType.F16
        out[name] = [int(q), list(reversed(w.shape)), fnv1a(gguf.quants.quantize(w, q).tobytes())]

    if (config.get("rope_scaling") or {}).get("rope_type") == "llama3":
        add("rope_freqs.weight", llama3_factors(config))
    for file in sorted(folder.glob("model*.safetensors")):
        with safe_open(file, "np") as s:
            keys = list(s.keys())
        for key in keys:
            if config.get("tie_word_embeddings") and key == "lm_head.weight":
                continue
            w = widened(file, key)
            if config["model_type"] == "llama" and ".q_proj." in key:
                w = neighbours(w, config["num_attention_heads"])
            if config["model_type"] == "llama" and ".k_proj." in key:
                w = neighbours(w, config["num_key_value_heads"])
            add(names.get_name(key, try_suffixes=(".weight", ".bias")), w)
    return out


def texts(list_of):
    data = b"".join(len(t.encode()).to_bytes(8, "little") + t.encode() for t in list_of)
    return fnv1a(data)


def tokens_of(folder, n):
    t = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    document = json.loads((folder / "tokenizer.json").read_text())
    spelled = {i: text for text, i in document["model"]["vocab"].items()}
    added = t.get_added_tokens_decoder()
    tokens, kinds = [], []
    for i in range(n):
        if i in added:
            text = added[i].content
            special = added[i].special or (text.startswith("<|") and text.endswith("|>"))
            tokens.append(text)
            kinds.append(3 if special else 4)
        elif i in spelled:
            tokens.append(spelled[i])
            kinds.append(1)
        else:
            tokens.append(f"[PAD{i}]")
            kinds.append(5)
    merges = [m if isinstance(m, str) else " ".join(p.replace(" ", "\u0120") for p in m)
              for m in document["model"]["merges"]]
    return {"tokens": texts(tokens), "token_type": fnv1a(np.array(kinds, np.int32).tobytes()),
            "merges": texts(merges)}


def main():
    cases = []
    for model, tokenizer, split in [("llama_llama3", "llama3", "llama-bpe"),
                                    ("llama_biases", "llama3", "llama-bpe"),
                                    ("llama_f16", "qwen2", "qwen2"),
                                    ("qwen2_bf16", "qwen2", "qwen2"),
                                    ("qwen3_untied", "qwen2", "qwen2")]:
        folder = ROOT / "models" / model
        config = json.loads((folder / "config.json").read_text())
        for kind in TYPES:
            cases.append({
                "function": "gguf_export", "name": f"{model} {kind}",
                "inputs": {"model": f"models/{model}", "tokenizer": f"tokenizer/{tokenizer}",
                           "type": kind},
                "expected": {"architecture": config["model_type"], "pre": split,
                             "tensors": tensors_of(folder, config, kind),
                             **tokens_of(ROOT / "tokenizer" / tokenizer, config["vocab_size"])}})
    header = {"what": "contents of GGUF files", "command": "scripts/golden/export.py",
              "reference": f"gguf {gguf.__dict__.get('__version__', '0.19.0')}, "
                           f"numpy {np.__version__}, tokenizers {tokenizers.__version__}"}
    text = json.dumps({"_header": header, "cases": cases}, indent=0, separators=(",", ":"))
    (ROOT / "gguf.json").write_text(text.replace(",\n", ",") + "\n")


main()
