#!/usr/bin/env python3
"""A mix of clients against `ares-train serve` for some minutes: short, long and streamed answers,
clients that vanish, bodies that are no JSON, connections that send nothing. Every answer with a
seed is compared with the one that the idle server gave; the server's memory is read every second.
Python's standard library alone.

    benchmarks/serve_load.py --model DIR [--build build] [--connections 200] [--seconds 600]
                             [--cache-tokens 16384]

Prints JSON lines: what was asked and answered, times to the first token, resident memory. Exit
code 1 where an answer was wrong, the server failed, or memory grew by more than a tenth and 16 MiB
between the second quarter and the last.
"""

import argparse
import collections
import http.client
import json
import random
import re
import socket
import statistics
import subprocess
import sys
import threading
import time

QUESTIONS = 24
MALFORMED = [b"{", b"[]", b'{"messages":[]}', b'{"messages":[{"role":"user"}],"n":-1}', b"\xff\xfe",
             b'{"messages":[{"role":"user","content":"x"}],"temperature":"hot"}']  # fmt: skip


def body(i, stream):
    """A question with its seed; every third one asks for a longer answer."""
    text = f"Count from {i} upwards." if i % 2 else f"Say something about the number {i}."
    return dict(messages=[{"role": "user", "content": text}], seed=i, temperature=1.0, stream=stream,
                max_tokens=48 if i % 3 == 0 else 8, ignore_eos=True,
                return_token_ids=True)  # fmt: skip


def connect(address):
    return http.client.HTTPConnection(*address, timeout=600)


def ask(connection, i, stream, vanish_after=None):
    """The ids of the answer and the seconds to its first token; None for a client that vanished."""
    begin = time.monotonic()
    connection.request("POST", "/v1/chat/completions", json.dumps(body(i, stream)),
                       {"content-type": "application/json"})  # fmt: skip
    answer = connection.getresponse()
    if answer.status != 200:
        raise ValueError(f"status {answer.status}: {answer.read()[:200]}")
    if not stream:
        return json.loads(answer.read())["choices"][0]["token_ids"], None
    ids, first, pieces = [], None, 0
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        choice = (json.loads(line[6:])["choices"] or [{}])[0]
        if not choice.get("token_ids"):
            continue
        first = first or time.monotonic() - begin
        ids += choice["token_ids"]
        pieces += 1
        if vanish_after and pieces >= vanish_after:
            connection.close()
            return None, first
    return ids, first


def resident_mib(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) / 1024


class Load:
    def __init__(self, address, expected, end):
        self.address, self.expected, self.end = address, expected, end
        self.lock, self.count, self.first, self.wrong = threading.Lock(), collections.Counter(), [], []
        self.tokens = 0

    def once(self, random_, connection):
        """One deed of a client; gives the connection to go on with."""
        kind = random_.choices(["whole", "streamed", "vanishing", "malformed", "silent"],
                               [30, 40, 15, 10, 5])[0]  # fmt: skip
        i = random_.randrange(QUESTIONS)
        first = ids = None
        if kind == "malformed":
            connection.request("POST", "/v1/chat/completions", random_.choice(MALFORMED))
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 400 or b'"error"' not in text:
                self.wrong.append(f"malformed: {answer.status} {text[:100]}")
        elif kind == "silent":
            s = socket.create_connection(self.address)
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-le")
            time.sleep(random_.random())
            s.close()
        elif kind == "vanishing":
            ids, first = ask(connection, i, True, random_.randint(1, 4))
            connection = connect(self.address)
            ids = None
        else:
            ids, first = ask(connection, i, kind == "streamed")
            if ids != self.expected[i]:
                self.wrong.append(f"{kind} question {i}: {ids} != {self.expected[i]}")
        with self.lock:
            self.count[kind] += 1
            self.tokens += len(ids or [])
            if first is not None:
                self.first.append(first)
        return connection

    def client(self, number):
        random_, connection = random.Random(number), connect(self.address)
        while time.monotonic() < self.end:
            try:
                connection = self.once(random_, connection)
            except Exception as e:  # whatever a server that fails does to its clients
                self.wrong.append(f"client {number}: {type(e).__name__}: {e}")
                connection = connect(self.address)
        connection.close()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--model", required=True)
    p.add_argument("--build", default="build")
    p.add_argument("--connections", type=int, default=200)
    p.add_argument("--seconds", type=float, default=600)
    # small, so that it is full early: memory of the cache is taken as it fills
    p.add_argument("--cache-tokens", type=int, default=16384)
    a = p.parse_args()
    server = subprocess.Popen(
        [a.build + "/ares-train", "serve", "--model", a.model, "--port", "0"]
        + ["--cache-tokens", str(a.cache_tokens)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    host, port = server.stdout.readline().split("//")[-1].strip().split(":")
    address = (host, int(port))
    expected = [ask(connect(address), i, False)[0] for i in range(QUESTIONS)]
    load = Load(address, expected, time.monotonic() + a.seconds)
    clients = [threading.Thread(target=load.client, args=(i,)) for i in range(a.connections)]
    for t in clients:
        t.start()
    memory = []
    while any(t.is_alive() for t in clients):
        memory.append(resident_mib(server.pid))
        time.sleep(1)
    again = [ask(connect(address), i, False)[0] for i in range(QUESTIONS)]
    server.terminate()
    code = server.wait()
    quarter = max(1, len(memory) // 4)
    second, last = max(memory[quarter : 2 * quarter] or memory), max(memory[-quarter:])
    first = sorted(load.first) or [0.0]
    grew = last > second * 1.1 and last > second + 16
    print(json.dumps(dict(measure="load", connections=a.connections, seconds=a.seconds, **load.count,
                          tokens_per_s=round(load.tokens / a.seconds, 1), wrong=len(load.wrong),
                          exit_code=code, same_afterwards=again == expected)))
    print(json.dumps(dict(measure="time to first token under load", unit="s",
                          p50=round(statistics.median(first), 3),
                          p99=round(first[min(len(first) - 1, int(0.99 * len(first)))], 3))))
    print(json.dumps(dict(measure="resident memory under load", unit="MiB",
                          start=round(memory[0], 1), first_quarter=round(max(memory[:quarter]), 1),
                          second=round(second, 1), last=round(last, 1), end=round(memory[-1], 1))))
    for line in load.wrong[:10]:
        print(line, file=sys.stderr)
    return 1 if load.wrong or code or again != expected or grew else 0


if __name__ == "__main__":
    sys.exit(main())
