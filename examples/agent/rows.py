#!/usr/bin/env python3
"""Prints rows for a supervised start: conversations in which the calculator is used, as the endpoint
writes tools for a chat template that knows none. Every third answer is a wrong number, so that
there is something left to learn by rewards."""

import json
import random

from_agent = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object",
               "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}}]
SYSTEM = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided "
    "with function signatures within <tools></tools> XML tags:\n<tools>\n"
    + "\n".join(json.dumps(tool) for tool in from_agent)
    + "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>')
chance = random.Random(1)
for i in range(400):
    a, b = chance.randint(0, 9), chance.randint(0, 9)
    call = json.dumps({"name": "add", "arguments": {"a": a, "b": b}})
    told = a + b if i % 3 else chance.randint(0, 18)
    print(json.dumps({"messages": [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"{a}+{b}=?"},
        {"role": "assistant", "content": f"<tool_call>\n{call}\n</tool_call>"},
        {"role": "user", "content": f"<tool_response>\n{a + b}\n</tool_response>"},
        {"role": "assistant", "content": str(told)}]}))
