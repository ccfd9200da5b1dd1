"""An environment for tests: counts up, and makes trouble when asked to.

Actions: up (adds 1; done at 3), and those of TROUBLE. --ids: lines hold an id, one count for each;
answers are written in reverse order of the questions that have come. --free: no list of actions.
--starts FILE: writes a line into it for each start.
"""

import json
import os
import select
import sys
import time

TROUBLE = {
    "nonsense": "hello there",
    "nan": '{"observation": "x", "reward": NaN, "done": false}',
    "huge": '{"observation": "x", "reward": 1e300, "done": false}',
    "rich": '{"observation": "x", "reward": -2e30, "done": false}',
    "null": '{"observation": "x", "reward": null, "done": false}',
    "text": '{"observation": "x", "reward": "1", "done": false}',
    "silent": '{"reward": 1, "done": false}',
    "endless": '{"observation": "x", "reward": 1}',
    "list": '[1, 2]',
    "number": '7',
    "info": '{"observation": "x", "reward": 1, "done": false, "info": 3}',
    "bytes": b'{"observation": "\xff\xfe", "reward": 1, "done": false}',
    "says": '{"error": "the pieces have fallen off the board"}',
    "twice": '{"observation": "x", "reward": 1, "done": false}\n{"observation": "y"}',
}
sys.stderr = open(os.devnull, "w")
ids = "--ids" in sys.argv
counts, asked = {}, []


def say(text, key):
    data = text if isinstance(text, bytes) else text.encode()
    if ids and data.startswith(b"{"):
        data = b'{"id": %d, ' % key + data[1:]
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def answer(question):
    key = question.get("id", 0)
    if "reset" in question:
        counts[key] = 0
        seed = question["reset"]["seed"]
        known = {"observation": "count 0, seed %d" % seed}
        if "number" in question["reset"]:
            known["observation"] += ", number %d" % question["reset"]["number"]
        if "--free" not in sys.argv:
            known["actions"] = ["up", "late", "die", "kill", "close", "flood", "stray", "stranger",
                                "memory", *TROUBLE]
        return say({13: "nonsense", 14: '{"observation": 1}',
                    15: '{"observation": "x", "actions": []}',
                    17: '{"observation": "x", "done": true}',
                    16: '{"observation": "x", "actions": ["a", 2]}'}.get(seed, json.dumps(known)), key)
    action = question["step"]["action"]
    if action in TROUBLE:
        return say(TROUBLE[action], key)
    if action == "late":
        time.sleep(1000)
    elif action == "die":
        os._exit(7)
    elif action == "kill":
        os.kill(os.getpid(), 9)
    elif action == "close":
        os.close(1)
        time.sleep(1000)
    elif action == "flood":
        while True:
            sys.stdout.write("x" * 65536)
    elif action == "memory":
        bytearray(1 << 31)
    elif action == "stranger":
        key = 12345
    elif action == "up":
        counts[key] += 1
    say(json.dumps({"observation": "count %d" % counts.get(key, 0), "reward": 1, "done":
                    counts.get(key, 0) == 3, "info": {"success": True, "half": 0.5, "why": "x",
                    "a name": 1}}), key)


if "--starts" in sys.argv:
    with open(sys.argv[sys.argv.index("--starts") + 1], "a") as file:
        file.write("start\n")
pending = b""
while True:
    block = os.read(0, 65536)
    if not block:
        break
    *lines, pending = (pending + block).split(b"\n")
    asked += [json.loads(line) for line in lines]
    if ids and select.select([0], [], [], 0.02)[0]:
        continue  # more questions have come
    while asked:
        answer(asked.pop())
