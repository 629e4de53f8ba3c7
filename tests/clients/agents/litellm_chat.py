"""A tool loop through litellm; the argument names its provider, ``stream`` after it streams."""

import sys

import litellm
from sums import PARAMETERS, TIMEOUT_S, finish, question, run_tool

model = f"{sys.argv[1]}/policy"
tools = [{"type": "function", "function": {"name": "add", "description": "Add numbers.", "parameters": PARAMETERS}}]


def ask(messages):
    given = {"model": model, "messages": messages, "tools": tools, "timeout": TIMEOUT_S}
    if "stream" in sys.argv:
        chunks = list(litellm.completion(**given, stream=True))
        return litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message
    return litellm.completion(**given).choices[0].message


messages = [{"role": "user", "content": question()}]
while True:
    answer = ask(messages)
    messages.append(answer.model_dump())
    if not answer.tool_calls:
        break
    messages += [
        {"role": "tool", "tool_call_id": call.id, "content": run_tool(call.function.arguments)}
        for call in answer.tool_calls
    ]
finish(answer.content)
