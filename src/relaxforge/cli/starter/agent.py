"""A complete agent, to start from: one question, one model request, one reward. Standard library only.

Replace ``work`` by what your agent does. It may make many requests, run tools and start processes, as long as every
request replays its whole conversation and the program ends by itself.
"""

import http.client
import json
import os
from typing import Any
from urllib.parse import urlsplit


def main() -> None:
    with open(os.environ["RELAX_INPUT_JSON"], encoding="utf-8") as file:
        task = json.load(file)
    reward = work(task["messages"], task["metadata"])
    with open(os.environ["RELAX_OUTPUT_JSON"], "w", encoding="utf-8") as file:
        json.dump({"reward": reward, "metadata": {"task_success": reward}}, file)


def work(messages: list[dict[str, Any]], metadata: dict[str, Any]) -> float:
    """The reward of one Task: 1.0 for the right answer, else 0.0."""
    reply = ask(messages)["content"] or ""
    return float(reply.strip(" .!\n").lower() == metadata["answer"])


def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """One model request; the answer is a message to put behind the others before the next request."""
    base = urlsplit(os.environ["RELAX_BASE_URL"])
    connection = http.client.HTTPConnection(base.netloc, timeout=9999)
    connection.request(
        "POST",
        base.path.rstrip("/") + "/v1/chat/completions",
        json.dumps({"model": "model", "messages": messages}),
        {"Authorization": f"Bearer {os.environ['RELAX_SESSION_ID']}", "Content-Type": "application/json"},
    )
    response = connection.getresponse()
    body = response.read().decode()
    if response.status != 200:
        raise SystemExit(f"the model API answered {response.status}: {body}")
    answer: dict[str, Any] = json.loads(body)["choices"][0]["message"]
    return answer


if __name__ == "__main__":
    main()
