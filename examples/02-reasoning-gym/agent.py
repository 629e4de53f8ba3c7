"""Asks the model once and leaves: questions come from the dataset, rewards from verify.py. Standard library only."""

import http.client
import json
import os
from urllib.parse import urlsplit


def main() -> None:
    with open(os.environ["RELAX_INPUT_JSON"], encoding="utf-8") as file:
        messages = json.load(file)["messages"]
    base = urlsplit(os.environ["RELAX_BASE_URL"])
    connection = http.client.HTTPConnection(base.netloc, timeout=9999)
    connection.request(
        "POST",
        base.path.rstrip("/") + "/v1/chat/completions",
        json.dumps({"model": "model", "messages": messages}),
        {"Authorization": f"Bearer {os.environ['RELAX_SESSION_ID']}", "Content-Type": "application/json"},
    )
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"the model API answered {response.status}: {response.read().decode()}")


if __name__ == "__main__":
    main()
