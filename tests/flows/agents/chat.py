"""A chat with the model over plain HTTP, for the agents of these tests: the standard library and nothing else."""

import json
import os
import urllib.error
import urllib.request


def ask(messages, session_id=None, headers=None, timeout=60, **fields):
    """One model request; returns the assistant message. HTTP errors are raised as they are."""
    request = urllib.request.Request(
        os.environ["RELAX_BASE_URL"].rstrip("/") + "/v1/chat/completions",
        json.dumps({"model": "model", "messages": messages, **fields}).encode(),
        {
            "Authorization": "Bearer " + (session_id or os.environ["RELAX_SESSION_ID"]),
            "Content-Type": "application/json",
            **(headers or {}),
        },
    )
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)["choices"][0]["message"]


def task():
    with open(os.environ["RELAX_INPUT_JSON"], encoding="utf-8") as file:
        return json.load(file)


def finish(**output):
    with open(os.environ["RELAX_OUTPUT_JSON"], "w", encoding="utf-8") as file:
        json.dump(output, file)


def export(*records):
    with open(os.environ["RELAX_OUTPUT_JSON"], "w", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
