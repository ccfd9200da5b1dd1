#!/usr/bin/env python3
"""A training loop of one's own, in Python, against `ares-train serve`: first on examples of sums,
then by rewards. The Tinker SDK sends data and gets log-probs back; weights, gradients and optimizer
stay in the server (docs/tinker.md).

    ares-train serve --model models/SmolLM2-135M-Instruct
    TINKER_BASE_URL=http://127.0.0.1:8000 TINKER_API_KEY=tml-local python examples/tinker/sums.py
"""

import os
import random
import re

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import tinker
from tinker import types

RANK, LEARN_STEPS, RL_STEPS, QUESTIONS, ANSWERS = 16, 8, 4, 4, 8
LEARNING_RATE = 1e-3


def now(x):
    """Newer versions of the SDK return a future where older ones return the thing itself."""
    return x.result() if hasattr(x, "result") else x


def question(rng):
    a, b = rng.randint(10, 49), rng.randint(10, 49)
    return f"{a} + {b} =", a + b


def example(tokenizer, text, answer):
    """Only the answer's tokens have weight; position i scores token i + 1."""
    prompt, tokens = tokenizer.encode(text), tokenizer.encode(f" {answer}\n")
    ids = prompt + tokens
    weights = [0.0] * (len(prompt) - 1) + [1.0] * len(tokens)
    return types.Datum(
        model_input=types.ModelInput.from_ints(ids[:-1]),
        loss_fn_inputs={"target_tokens": ids[1:], "weights": weights},
    )


def step(client, data, loss):
    """Both are sent at once; the server does them in this order."""
    backward = client.forward_backward(data, loss)
    optimizer = client.optim_step(types.AdamParams(learning_rate=LEARNING_RATE))
    optimizer.result()
    return backward.result().metrics["loss:sum"]


def rewarded(tokenizer, sampler, rng):
    """Answers to some questions, each with its advantage over its group; and the mean reward."""
    stop = types.SamplingParams(max_tokens=8, temperature=1.0, stop=["\n"])
    asked = [question(rng) for _ in range(QUESTIONS)]
    prompts = [tokenizer.encode(text) for text, _ in asked]
    futures = [
        sampler.sample(types.ModelInput.from_ints(p), num_samples=ANSWERS, sampling_params=stop)
        for p in prompts
    ]
    data, total = [], 0.0
    for (_, answer), prompt, future in zip(asked, prompts, futures):
        sequences = future.result().sequences
        right = [
            float(re.match(rf" {answer}\b", tokenizer.decode(s.tokens)) is not None)
            for s in sequences
        ]
        mean = sum(right) / len(right)
        total += mean / QUESTIONS
        for s, reward in zip(sequences, right):
            if reward == mean:  # nothing to learn from
                continue
            ids, before = prompt + list(s.tokens), len(prompt) - 1
            n = len(s.tokens)
            data.append(
                types.Datum(
                    model_input=types.ModelInput.from_ints(ids[:-1]),
                    loss_fn_inputs={
                        "target_tokens": ids[1:],
                        "logprobs": [0.0] * before + list(s.logprobs),
                        "advantages": [0.0] * before + [reward - mean] * n,
                    },
                )
            )
    return data, total


def main():
    rng = random.Random(1)
    service = tinker.ServiceClient()
    model = service.get_server_capabilities().supported_models[0].model_name
    client = now(service.create_lora_training_client(base_model=model, rank=RANK))
    tokenizer = client.get_tokenizer()
    for i in range(LEARN_STEPS):
        data = [example(tokenizer, *question(rng)) for _ in range(32)]
        tokens = sum(sum(d.loss_fn_inputs["weights"].data) for d in data)
        print(f"example step {i + 1}  loss {step(client, data, 'cross_entropy') / tokens:.3f}")
    for i in range(RL_STEPS):
        sampler = now(client.save_weights_and_get_sampling_client())
        data, reward = rewarded(tokenizer, sampler, rng)
        if data:
            step(client, data, "importance_sampling")
        print(f"reward step {i + 1}  mean reward {reward:.3f}  answers that teach {len(data)}")
    print("saved as", client.save_state("sums").result().path)


if __name__ == "__main__":
    main()
