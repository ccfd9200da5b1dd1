#!/usr/bin/env python3
"""Prints rows for a supervised start: conversations in which the calculator is used, as the endpoint
writes tools for a chat template that knows none. In every other one it is not used, and the answer is
a guess: that the tool pays is left to be learnt by rewards."""

import json
import random

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object",
               "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}}]
SYSTEM = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided "
    "with function signatures within <tools></tools> XML tags:\n<tools>\n"
    + "\n".join(json.dumps(tool) for tool in TOOLS)
    + "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>')
chance = random.Random(1)
for i in range(400):
    a, b = chance.randint(0, 9), chance.randint(0, 9)
    call = json.dumps({"name": "add", "arguments": {"a": a, "b": b}})
    used = [
        {"role": "assistant", "content": f"<tool_call>\n{call}\n</tool_call>"},
        {"role": "user", "content": f"<tool_response>\n{a + b}\n</tool_response>"},
        {"role": "assistant", "content": str(a + b)}]
    guessed = [{"role": "assistant", "content": str(chance.randint(0, 18))}]
    print(json.dumps({"messages": [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"{a}+{b}=?"},
        *(used if i % 2 else guessed)]}))
