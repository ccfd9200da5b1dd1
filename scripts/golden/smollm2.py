"""Writes tests/golden/smollm2.json: what transformers computes with SmolLM2-135M-Instruct.

    python scripts/golden/smollm2.py [MODEL_DIR]        (torch 2.11, transformers 5.17)

MODEL_DIR is models/SmolLM2-135M-Instruct by default. Log-probs, entropies and greedy tokens are in
float32; those of the shortest prompt in float64 too, norms and rotary tables included.
"""

import json
import pathlib
import re
import sys

import torch
import transformers
from models import load, precision

REPO = pathlib.Path(__file__).resolve().parents[2]
NEW_TOKENS = 24
CHATS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "user", "content": "What is 7 + 5?"}],
    [
        {"role": "system", "content": "You answer in one short sentence."},
        {"role": "user", "content": "Why is the sky blue?"},
    ],
    [
        {"role": "user", "content": "Name three animals that live in the sea."},
        {"role": "assistant", "content": "Whale, octopus, crab."},
        {
            "role": "user",
            "content": "Natalia sold clips to 48 of her friends in April, and then she sold half "
            "as many clips in May. "
            "How many clips did Natalia sell altogether in April and May?",
        },
    ],
]


def score(model, ids):
    x = torch.tensor([ids])
    with torch.no_grad():
        log_p = torch.log_softmax(model(input_ids=x, use_cache=False).logits[0, :-1], -1)
    return log_p.gather(-1, x[0, 1:, None])[:, 0].tolist(), (
        -(log_p.exp() * log_p).sum(-1)
    ).tolist()


def greedy(model, ids):
    """NEW_TOKENS greedy tokens with a key cache, continued after an end-of-sequence token.

    gap is the smallest distance between the best logit and the second best.
    """
    out, gap, cache, x = [], float("inf"), None, torch.tensor([ids])
    for _ in range(NEW_TOKENS):
        with torch.no_grad():
            y = model(input_ids=x, past_key_values=cache, use_cache=True, logits_to_keep=1)
        top, cache = y.logits[0, -1].topk(2), y.past_key_values
        gap = min(gap, (top.values[0] - top.values[1]).item())
        x = top.indices[:1][None]
        out.append(x.item())
    return out, gap


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    path = pathlib.Path(sys.argv[1]) if sys.argv[1:] else REPO / "models/SmolLM2-135M-Instruct"
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = load(path, torch.float32)
    cases = []
    for chat in CHATS:
        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        log_probs, entropies = score(model, ids)
        tokens, gap = greedy(model, ids)
        cases.append(
            {
                "messages": chat,
                "input_ids": ids,
                "log_probs": log_probs,
                "entropies": entropies,
                "greedy": tokens,
                "greedy_text": tokenizer.decode(tokens),
                "greedy_gap": gap,
            }
        )
        print("%3d tokens, gap %.3f: %r" % (len(ids), gap, cases[-1]["greedy_text"]), flush=True)
    del model
    case = min(cases, key=lambda c: len(c["input_ids"]))
    with precision(torch.float64):
        case["log_probs_f64"], case["entropies_f64"] = score(
            load(path, torch.float64), case["input_ids"]
        )
    for what in "log_probs", "entropies":
        case["f32_dev_" + what] = max(abs(x - y) for x, y in zip(case[what], case[what + "_f64"]))
        print(what, "float32 from float64: %.1e" % case["f32_dev_" + what])
    metadata = {
        "command": "python scripts/golden/smollm2.py",
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
    }
    text = json.dumps(
        {"metadata": metadata, "model": "models/SmolLM2-135M-Instruct", "cases": cases}, indent=1
    )
    text = re.sub(r"\[[^\[\]{}]*\]", lambda m: " ".join(m.group().split()), text)
    (REPO / "tests/golden/smollm2.json").write_text(text + "\n")


main()
