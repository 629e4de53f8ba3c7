"""Asks the model for a sum, checks the answer, and on a wrong one says so and asks once more.

It knows nothing about training: a task comes from a file, the model answers over HTTP, the result goes into a file.
Standard library only.
"""

import http.client
import json
import os
import re
from urllib.parse import urlsplit

SYSTEM = "You are a calculator. Reply with only the final number."


def main() -> None:
    with open(os.environ["RELAX_INPUT_JSON"], encoding="utf-8") as file:
        task = json.load(file)["metadata"]
    reward = solve(task["a"], task["b"])
    output = {
        "reward": reward,
        "metadata": {"task_success": float(reward > 0), "first_try": float(reward == 1)},
    }
    with open(os.environ["RELAX_OUTPUT_JSON"], "w", encoding="utf-8") as file:
        json.dump(output, file)


def solve(a: int, b: int) -> float:
    """1.0 when the first answer is right, 0.5 when the second is, else 0.0."""
    question = f"What is {a} + {b}?"
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    for reward in (1.0, 0.5):
        answer = ask(messages)
        if last_number(answer["content"]) == a + b:
            return reward
        messages += [answer, {"role": "user", "content": f"That is wrong. {question}"}]
    return 0.0


def last_number(text: str | None) -> int | None:
    numbers = re.findall(r"-?\d+", text or "")
    return int(numbers[-1]) if numbers else None


def ask(messages: list[dict]) -> dict:
    """One model request with the whole conversation so far; the answer is a message to put behind it."""
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
    return json.loads(body)["choices"][0]["message"]


if __name__ == "__main__":
    main()
