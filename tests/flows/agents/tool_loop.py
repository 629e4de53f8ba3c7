"""Calls a calculator as often as the model asks for it, and checks the final number."""

import json

from chat import ask, finish, task

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
        },
    }
]

messages = task()["messages"]
calls = 0
while True:
    answer = ask(messages, tools=TOOLS)
    messages.append(answer)
    if not answer.get("tool_calls"):
        break
    for call in answer["tool_calls"]:
        calls += 1
        given = json.loads(call["function"]["arguments"])
        result = str(given["a"] + given["b"])
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
finish(reward=1.0 if answer["content"].endswith("5") else 0.0, metadata={"calls": calls})
