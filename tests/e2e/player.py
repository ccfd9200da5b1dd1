"""A program that plays by itself, for tests: two requests, a reward that follows from the answers.

player.py [MODE]: how it makes trouble, in every fourth episode of a step (number % 4 == 1).
"""
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor

mode = sys.argv[1] if len(sys.argv) > 1 else "good"
last = None  # key of the episode before


def ask(base, key, messages, **more):
    body = json.dumps({"model": "any", "messages": messages, **more}).encode()
    head = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(base + "/chat/completions", body, head)) as f:
        return json.load(f)


def stream_and_die(base, key):
    """Reads the first bytes of a stream, and ends in the middle of it."""
    url = urllib.parse.urlparse(base)
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "stream": True})
    s = socket.create_connection((url.hostname, url.port))
    s.sendall(
        (
            f"POST {url.path}/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        ).encode()
    )
    s.recv(64)
    os._exit(0)


def play(line):
    global last
    episode, base = line["episode"], line["base_url"]
    key = episode["key"]
    bad = episode["number"] % 4 == 1
    if mode == "env_key":
        base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
        assert os.environ["OPENAI_API_BASE"] == base
        assert os.environ["NO_PROXY"].split(",")[0] == os.environ["no_proxy"].split(",")[0] == "127.0.0.1"
    if mode == "exit" and bad:
        os._exit(0)
    if mode == "silent" and bad:
        return {"reward": 1}
    if mode == "stream" and bad:
        stream_and_die(base, key)
    if mode == "yesterday" and last:
        try:
            ask(base, last, [{"role": "user", "content": "hi"}])
            return {"error": "yesterday's key is valid"}
        except urllib.error.HTTPError as e:
            if e.code != 401:
                return {"error": "yesterday's key: %d" % e.code}
    last = key
    if mode in ("at_once", "in_turn"):  # two equal questions and two others, and both choices of one
        asked = [[{"role": "user", "content": text}] for text in ("same", "same", "one", "other")]
        threads = 4 if mode == "at_once" else 1
        with ThreadPoolExecutor(threads) as pool:
            answers = list(pool.map(lambda m: ask(base, key, m, n=1 + (m[0]["content"] == "one")), asked))
        said = [c["message"]["content"] for a in answers for c in a["choices"]]
        return {"reward": sum(len(text) for text in said) % 7}
    task = episode["task"]["q"] if episode["task"] else "seed"
    messages = [{"role": "user", "content": "%s %d" % (task, episode["seed"])}]
    signs = 0
    for turn in range(4 if mode == "many" and bad else 2):
        if mode == "train_false" and turn == 1:
            ask(base, key, [{"role": "user", "content": "judge"}], train=False)
        # what a client asks of the sampling is not the run's
        answer = ask(base, key, messages, temperature=0.1, seed=5)["choices"][0]["message"]
        if mode == "edit" and turn == 0:
            answer["content"] = "edited"
        messages.append({"role": "assistant", "content": answer["content"]})
        messages.append({"role": "user", "content": "go on"})
        signs += len(answer["content"])
        if mode == "crash" and bad:
            sys.exit("lost my way")
        if mode == "family" and bad:  # children of a child, which take no hint and hold its output
            child = subprocess.Popen(["sh", "-c", "trap '' TERM HUP INT; sleep 1000 & echo $!; wait"],
                                     stdout=subprocess.PIPE)
            with open(os.environ["PLAYER_FAMILY"], "a") as f:
                f.write("%d %d\n" % (child.pid, int(child.stdout.readline())))
        if mode in ("hang", "family") and bad:
            time.sleep(1000)
    if mode == "flood" and bad:
        for _ in range(10 << 10):
            print("x" * 1023)
    if mode == "nan" and bad:
        print('{"reward": NaN}', flush=True)
    if mode == "text" and bad:
        return {"reward": "1"}
    if mode == "error" and bad:
        return {"error": "no idea"}
    if mode == "two":
        print(json.dumps({"reward": signs % 7}))
        return {"reward": 1000}
    if mode == "chatter":
        print("thinking aloud")
        print({"not": "json"})
    return {"reward": signs % 7, "info": {"signs": signs, "even": signs % 2 == 0}}


if mode == "script":  # never reads its input, plays once
    mode = "good"
    base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
    text = ask(base, key, [{"role": "user", "content": "seed"}])["choices"][0]["message"]["content"]
    print(json.dumps({"reward": len(text) % 7}))
    sys.exit(0)
for text in sys.stdin:
    line = json.loads(text)
    answer = play(line)
    if "id" in line:
        answer["id"] = line["id"]
    print(json.dumps(answer), flush=True)
