#!/usr/bin/env python3
"""The endpoint beside `ares-train generate` on the same requests, in turn, on one machine: tokens
per second, time to the first token, and whether the answers are the same. Python's standard library
alone.

    benchmarks/serve.py --model DIR [--build build] [--requests 32] [--tokens 64] [--rounds 3]
                        [--peer http://127.0.0.1:8080/v1]

--peer: another server that answers OpenAI's chat and knows ignore_eos, such as
benchmarks/peers/llama_server.py, asked the same questions in the same way.
Prints a JSON line per side.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request


def question(i):
    return {"messages": [{"role": "user", "content": f"Tell me something about the number {i}."}]}


def generate(a, path):
    """Seconds, and the ids of each answer."""
    begin = time.monotonic()
    out = subprocess.run(
        [a.build + "/ares-train", "generate", "--model", a.model, "--input", path]
        + ["--max-new-tokens", str(a.tokens), "--temperature", "0", "--ignore-eos"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return time.monotonic() - begin, [json.loads(x)["output_ids"] for x in out.splitlines()]


def ask(base, i, a, first, answers):
    body = dict(question(i), max_tokens=a.tokens, temperature=0, stream=True, ignore_eos=True)
    if answers is not None:
        body["return_token_ids"] = True
    r = urllib.request.Request(base + "/chat/completions", json.dumps(body).encode())
    r.add_header("content-type", "application/json")
    begin, ids, pieces = time.monotonic(), [], 0
    with urllib.request.urlopen(r, timeout=600) as f:
        for line in f:
            if not line.startswith(b"data: {"):
                continue
            choice = (json.loads(line[6:])["choices"] or [{}])[0]
            if not choice.get("delta", {}).get("content") and not choice.get("token_ids"):
                continue
            if not pieces:
                first.append(time.monotonic() - begin)
            pieces += 1
            ids += choice.get("token_ids") or []
    if answers is not None:
        answers[i] = ids
    return pieces


def load(base, a, own):
    """Seconds for all requests at once, times to first tokens, answers."""
    first, answers = [], {} if own else None
    threads = [
        threading.Thread(target=ask, args=(base, i, a, first, answers)) for i in range(a.requests)
    ]
    begin = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return time.monotonic() - begin, sorted(first), answers


def tell(side, seconds, tokens, first, **more):
    """Of each round tokens per second; of all of them the time to the first token."""
    rates = [round(tokens / s, 1) for s in seconds]
    times = sorted(first)
    if times:
        more["first_token_s"] = round(statistics.median(times), 3)
        more["first_token_p99_s"] = round(times[min(len(times) - 1, int(0.99 * len(times)))], 3)
    print(json.dumps(dict(measure="endpoint", side=side, unit="tokens/s", all=rates,
                          value=max(rates), **more)))  # fmt: skip


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--model", required=True)
    p.add_argument("--build", default="build")
    p.add_argument("--requests", type=int, default=32)
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--peer")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder, "questions.jsonl"))
        with open(path, "w") as f:
            f.writelines(json.dumps(question(i)) + "\n" for i in range(a.requests))
        server = subprocess.Popen(
            [a.build + "/ares-train", "serve", "--model", a.model, "--port", "0"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        base = server.stdout.readline().split()[-1] + "/v1"
        ours, theirs, peers, first, peer_first, same = [], [], [], [], [], True
        for _ in range(a.rounds):
            seconds, want = generate(a, path)
            theirs.append(seconds)
            seconds, times, answers = load(base, a, True)
            ours.append(seconds)
            first += times
            same = same and [answers[i] for i in range(a.requests)] == want
            if a.peer:
                seconds, times, _ = load(a.peer, a, False)
                peers.append(seconds)
                peer_first += times
        server.terminate()
        code = server.wait()
    n = a.requests * a.tokens
    tell("ares", ours, n, first, same_answers=same)
    tell("generate", theirs, n, [])
    if peers:
        tell("peer", peers, n, peer_first)
    return 0 if same and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
