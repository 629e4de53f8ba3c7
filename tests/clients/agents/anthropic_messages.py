"""A tool loop over Messages with the official client; ``stream`` as argument uses its streaming helper."""

import json
import sys

from anthropic import Anthropic
from sums import PARAMETERS, TIMEOUT_S, finish, question, run_tool

client = Anthropic(timeout=TIMEOUT_S)
tools = [{"name": "add", "description": "Add two numbers.", "input_schema": PARAMETERS}]


def ask(messages):
    given = {
        "model": "policy",
        "max_tokens": 500,
        "system": "Add with the tool.",
        "messages": messages,
        "tools": tools,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    if "stream" in sys.argv:
        with client.messages.stream(**given) as stream:
            return stream.get_final_message()
    return client.messages.create(**given)


messages = [{"role": "user", "content": question()}]
while True:
    answer = ask(messages)
    messages.append({"role": "assistant", "content": answer.content})
    if answer.stop_reason != "tool_use":
        break
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": run_tool(json.dumps(block.input))}
        for block in answer.content
        if block.type == "tool_use"
    ]
    messages.append({"role": "user", "content": results})
finish(answer.content[-1].text)
