#!/usr/bin/env python3
"""The agent of agent.py without the `openai` client: Python's standard library alone."""

import json
import os
import sys
import urllib.request

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object",
          "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}}]


def ask(messages):
    """The message that the policy answers with."""
    body = {"model": "policy", "messages": messages, "tools": TOOLS, "max_tokens": 96}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
         "Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)["choices"][0]["message"]


def use(call):
    """What the tool says to a call of the model."""
    try:
        arguments = json.loads(call["function"]["arguments"])
        return str(int(arguments["a"]) + int(arguments["b"]))
    except (ValueError, KeyError, TypeError):
        return "error"


def play(task):
    messages = [{"role": "user", "content": f"{task['a']}+{task['b']}=?"}]
    calls = 0
    for _ in range(2):
        answer = ask(messages)
        messages.append(answer)
        made = answer.get("tool_calls") or []
        if not made:
            break
        calls += len(made)
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": use(call)}
                     for call in made]
    said = (answer["content"] or "").strip()
    right = said == str(task["a"] + task["b"])
    # a call is worth something by itself: the sum is seldom right at first
    return {"reward": 0.5 * right + 0.5 * (calls == 1), "success": right,
            "info": {"calls": calls}}


for line in sys.stdin:
    print(json.dumps(play(json.loads(line)["episode"]["task"])), flush=True)
