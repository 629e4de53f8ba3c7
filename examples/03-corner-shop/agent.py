"""A clerk who does in the shop what the model says. The model has one tool, `mcp`: a command for the shop's MCP server.

It knows nothing about evaluation. Standard library only.
"""

import http.client
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

MOST_REQUESTS = 8
MOST_TOKENS = 128  # of one answer: a command is short, and a model that rambles on costs minutes on a CPU
SERVER = [sys.executable, "-S", "-E", "shop/server.py"]
MCP = {
    "type": "function",
    "function": {
        "name": "mcp",
        "description": "Say a command to the shop: first initialize, then a tool and its arguments, as words.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


class Shop:
    """An MCP client: one server, started here, that ends when its input does."""

    def __init__(self) -> None:
        self.server = subprocess.Popen(SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.tools: dict[str, list[str]] = {}
        self.sent = 0

    def do(self, command: str) -> str:
        """What the shop says to ``command``."""
        name, *words = command.split() or [""]
        if name == "initialize":
            return self.initialize()
        if name not in self.tools:
            return f"There is no {name or 'empty command'} here: " + (", ".join(self.tools) or "initialize first")
        arguments = dict(zip(self.tools[name], words, strict=False))
        answer = self.request("tools/call", {"name": name, "arguments": arguments})
        if "error" in answer:
            return answer["error"]["message"]
        return "\n".join(part["text"] for part in answer["result"]["content"])

    def initialize(self) -> str:
        client = {"name": "shop-clerk", "version": "1"}
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        hello = self.request("initialize", params)["result"]
        self.send({"method": "notifications/initialized"})
        tools = self.request("tools/list", {})["result"]["tools"]
        self.tools = {tool["name"]: list(tool["inputSchema"]["properties"]) for tool in tools}
        usage = ", ".join(" ".join([name, *names]) for name, names in self.tools.items())
        return f"{hello['serverInfo']['name']}, protocol {hello['protocolVersion']}, tools: {usage}"

    def request(self, method: str, params: dict) -> dict:
        self.sent += 1
        self.send({"id": self.sent, "method": method, "params": params})
        return json.loads(self.server.stdout.readline())

    def send(self, message: dict) -> None:
        self.server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.server.stdin.flush()


def main() -> None:
    with open(os.environ["RELAX_INPUT_JSON"], encoding="utf-8") as file:
        messages = json.load(file)["messages"]
    shop = Shop()
    for _ in range(MOST_REQUESTS):
        answer = ask(messages)
        messages.append(answer)
        if not answer.get("tool_calls"):
            break
        for call in answer["tool_calls"]:
            said = carry_out(shop, call["function"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": said})
    Path(os.environ["RELAX_OUTPUT_JSON"]).write_text("{}", encoding="utf-8")


def carry_out(shop: Shop, function: dict) -> str:
    try:
        command = str(json.loads(function["arguments"])["command"])
    except (ValueError, KeyError, TypeError):
        return 'mcp takes {"command": "..."}'
    said = shop.do(command)
    print(f"> {command}\n{said}", flush=True)
    return said


def ask(messages: list[dict]) -> dict:
    """One model request with the whole conversation so far; the answer is a message to put behind it."""
    base = urlsplit(os.environ["RELAX_BASE_URL"])
    connection = http.client.HTTPConnection(base.netloc, timeout=9999)
    connection.request(
        "POST",
        base.path.rstrip("/") + "/v1/chat/completions",
        json.dumps({"model": "model", "messages": messages, "tools": [MCP], "max_tokens": MOST_TOKENS}),
        {"Authorization": f"Bearer {os.environ['RELAX_SESSION_ID']}", "Content-Type": "application/json"},
    )
    response = connection.getresponse()
    body = response.read().decode()
    if response.status != 200:
        raise SystemExit(f"the model API answered {response.status}: {body}")
    return json.loads(body)["choices"][0]["message"]


if __name__ == "__main__":
    main()
