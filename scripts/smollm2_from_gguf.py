"""Turns the GGUF of SmolLM2-135M-Instruct into a Hugging Face directory.

    smollm2_from_gguf.py FILE.gguf DIR

Weights are written as float32: a Q4_1 value is d*q + m with d and m in float16, which neither
bfloat16 nor float16 holds. The output is the same byte for byte on every machine;
scripts/smollm2.sha256 holds its digests.
"""

import json
import os
import sys

import numpy as np
from gguf import GGUFReader, dequantize
from safetensors.numpy import save_file

TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hf_name(name):
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, what, suffix = name.split(".")
    return f"model.layers.{layer}.{TENSORS[what]}.{suffix}"


def unpermute(weight, heads):
    """Orders the rows of each head for the rotation of halves, as Hugging Face has it.

    GGUF keeps them as pairs (0, 1), (2, 3) ... for an interleaved rotation.
    """
    rows, columns = weight.shape
    return (
        weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )


def write_json(directory, name, value):
    with open(os.path.join(directory, name), "w", encoding="utf-8") as f:
        json.dump(value, f, indent=2, ensure_ascii=False)
        f.write("\n")


def main(source, directory):
    reader = GGUFReader(source)
    meta = {key: field.contents() for key, field in reader.fields.items()}
    assert meta["general.architecture"] == "llama" and meta["tokenizer.ggml.pre"] == "smollm"
    heads, kv_heads = meta["llama.attention.head_count"], meta["llama.attention.head_count_kv"]
    hidden = meta["llama.embedding_length"]
    tokens = meta["tokenizer.ggml.tokens"]
    bos, eos = meta["tokenizer.ggml.bos_token_id"], meta["tokenizer.ggml.eos_token_id"]
    pad, unknown = meta["tokenizer.ggml.padding_token_id"], meta["tokenizer.ggml.unknown_token_id"]
    os.makedirs(directory, exist_ok=True)

    weights = {}
    for tensor in reader.tensors:
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if ".attn_q." in tensor.name:
            weight = unpermute(weight, heads)
        elif ".attn_k." in tensor.name:
            weight = unpermute(weight, kv_heads)
        weights[hf_name(tensor.name)] = np.ascontiguousarray(weight)
    save_file(weights, os.path.join(directory, "model.safetensors"), metadata={"format": "pt"})

    write_json(
        directory,
        "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": bos,
            "eos_token_id": eos,
            "hidden_act": "silu",
            "hidden_size": hidden,
            "initializer_range": 0.041666666666666664,
            "intermediate_size": meta["llama.feed_forward_length"],
            "max_position_embeddings": meta["llama.context_length"],
            "mlp_bias": False,
            "model_type": "llama",
            "num_attention_heads": heads,
            "num_hidden_layers": meta["llama.block_count"],
            "num_key_value_heads": kv_heads,
            "pad_token_id": pad,
            "pretraining_tp": 1,
            "rms_norm_eps": 1e-05,
            "rope_scaling": None,
            "rope_theta": meta["llama.rope.freq_base"],
            "tie_word_embeddings": True,
            "torch_dtype": "float32",
            "use_cache": True,
            "vocab_size": len(tokens),
        },
    )
    write_json(
        directory,
        "generation_config.json",
        {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": pad},
    )

    special = [i for i, kind in enumerate(meta["tokenizer.ggml.token_type"]) if kind == 3]
    flags = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    write_json(
        directory,
        "tokenizer.json",
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{"id": i, "content": tokens[i], **flags} for i in special],
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
            },
            "post_processor": None,
            "decoder": {**byte_level, "add_prefix_space": True},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {token: i for i, token in enumerate(tokens)},
                "merges": meta["tokenizer.ggml.merges"],
            },
        },
    )
    names = {
        "bos_token": tokens[bos],
        "eos_token": tokens[eos],
        "pad_token": tokens[pad],
        "unk_token": tokens[unknown],
    }
    write_json(
        directory,
        "tokenizer_config.json",
        {
            "add_prefix_space": False,
            "added_tokens_decoder": {str(i): {"content": tokens[i], **flags} for i in special},
            "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
            "chat_template": meta["tokenizer.chat_template"],
            "clean_up_tokenization_spaces": False,
            "model_max_length": meta["llama.context_length"],
            # The generic class takes tokenizer.json as it is; a named class would put its own split
            # of digits in its place.
            "tokenizer_class": "PreTrainedTokenizerFast",
            **names,
        },
    )
    write_json(
        directory,
        "special_tokens_map.json",
        {"additional_special_tokens": ["<|im_start|>", "<|im_end|>"], **names},
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
