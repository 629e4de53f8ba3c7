"""A tool loop over Chat Completions with the official client; ``stream`` as argument uses its streaming helper."""

import sys

from openai import OpenAI
from sums import PARAMETERS, TIMEOUT_S, finish, question, run_tool

client = OpenAI(timeout=TIMEOUT_S)
function = {"name": "add", "description": "Add two numbers.", "parameters": PARAMETERS, "strict": True}
tools = [{"type": "function", "function": function}]


def ask(messages):
    if "stream" in sys.argv:
        with client.chat.completions.stream(model="policy", messages=messages, tools=tools) as stream:
            return stream.get_final_completion().choices[0].message
    return client.chat.completions.create(model="policy", messages=messages, tools=tools).choices[0].message


messages = [{"role": "developer", "content": "Add with the tool."}, {"role": "user", "content": question()}]
while True:
    answer = ask(messages)
    messages.append(answer)
    if not answer.tool_calls:
        break
    messages += [
        {"role": "tool", "tool_call_id": call.id, "content": run_tool(call.function.arguments)}
        for call in answer.tool_calls
    ]
finish(answer.content)
