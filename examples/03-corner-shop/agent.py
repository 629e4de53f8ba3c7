"""A clerk: asks the model for one command at a time, does it in the shop, and reports what came of it.

It knows nothing about evaluation. Each command is noted in steps.jsonl, so that a reader sees what was done in the shop
beside what was said. Standard library only.
"""

import http.client
import json
import os
from pathlib import Path
from urllib.parse import urlsplit

MOST_COMMANDS = 6
SHOP = Path(os.environ["RELAX_WORLD_DIR"], "shop.json")
STEPS = Path(os.environ["RELAX_SESSION_IO_DIR"], "steps.jsonl")


def main() -> None:
    with open(os.environ["RELAX_INPUT_JSON"], encoding="utf-8") as file:
        messages = json.load(file)["messages"]
    for _ in range(MOST_COMMANDS):
        answer = ask(messages)
        words = (answer["content"] or "").split()
        if words[:1] == ["done"]:
            break
        result = do(words)
        note(" ".join(words), result)
        print(f"> {' '.join(words)}\n{result}", flush=True)
        messages += [answer, {"role": "user", "content": result}]
    Path(os.environ["RELAX_OUTPUT_JSON"]).write_text("{}", encoding="utf-8")


def do(words: list[str]) -> str:
    """Carry out one command in the shop; what the shop answers."""
    shop = json.loads(SHOP.read_text(encoding="utf-8"))
    match words:
        case ["stock"]:
            shop["looked"] = True
            result = "In stock: " + ", ".join(f"{count} {item}" for item, count in shop["stock"].items())
        case ["reserve", item, count] if count.isdigit() and item in shop["stock"]:
            if int(count) > shop["stock"][item]:
                return f"Only {shop['stock'][item]} {item} left, nothing reserved"
            shop["stock"][item] -= int(count)
            shop["reserved"][item] = shop["reserved"].get(item, 0) + int(count)
            result = f"Reserved: {count} {item}"
        case ["order", customer] if shop["reserved"]:
            number = f"ORD-{8841 + len(shop['orders'])}"
            shop["orders"].append({"number": number, "customer": customer, "items": shop["reserved"]})
            shop["reserved"] = {}
            result = f"Placed {number} for {customer}"
        case ["order", _]:
            return "Nothing is reserved, nothing ordered"
        case _:
            return "Unknown command. Say: stock | reserve ITEM COUNT | order CUSTOMER | done"
    SHOP.write_text(json.dumps(shop, indent=1), encoding="utf-8")
    return result


def note(command: str, observation: str) -> None:
    with STEPS.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"tool": "shop", "command": command, "observation": observation}) + "\n")


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
