"""A tool loop over Responses with the official client; ``stream`` as argument uses its streaming helper."""

import sys

from openai import OpenAI
from sums import PARAMETERS, TIMEOUT_S, finish, question, run_tool

client = OpenAI(timeout=TIMEOUT_S)
tools = [{"type": "function", "name": "add", "description": "Add two numbers.", "parameters": PARAMETERS}]


def ask(items):
    given = {"model": "policy", "instructions": "Add with the tool.", "input": items, "tools": tools, "store": False}
    if "stream" in sys.argv:
        with client.responses.stream(**given) as stream:
            return stream.get_final_response()
    return client.responses.create(**given)


items = [{"role": "user", "content": question()}]
while True:
    response = ask(items)
    items += response.output
    calls = [item for item in response.output if item.type == "function_call"]
    if not calls:
        break
    for call in calls:
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": run_tool(call.arguments)})
finish(response.output_text)
