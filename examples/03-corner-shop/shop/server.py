"""The shop's MCP server, over stdin and stdout: one JSON-RPC message per line, protocol 2025-06-18.

It sells what `world/stock.py` put into RELAX_WORLD_DIR/shop.json. Standard library only.
"""

import json
import os
import sys
from pathlib import Path

SHOP = Path(os.environ["RELAX_WORLD_DIR"], "shop.json")
PROTOCOL = "2025-06-18"
INVALID_PARAMS, NO_METHOD = -32602, -32601


def stock(shop: dict) -> str:
    shop["looked"] = True
    return "In stock: " + ", ".join(f"{count} {item}" for item, count in shop["stock"].items())


def reserve(shop: dict, item: str, count: str) -> str:
    left = shop["stock"].get(item, 0)
    if not count.isdigit() or int(count) > left:
        return f"Only {left} {item} left, nothing reserved"
    shop["stock"][item] -= int(count)
    shop["reserved"][item] = shop["reserved"].get(item, 0) + int(count)
    return f"Reserved: {count} {item}"


def order(shop: dict, customer: str) -> str:
    if not shop["reserved"]:
        return "Nothing is reserved, nothing ordered"
    number = f"ORD-{8841 + len(shop['orders'])}"
    shop["orders"].append({"number": number, "customer": customer, "items": shop["reserved"]})
    shop["reserved"] = {}
    return f"Placed {number} for {customer}"


TOOLS = {
    "stock": (stock, "What is on the shelves", []),
    "reserve": (reserve, "Put something aside", ["item", "count"]),
    "order": (order, "Order what was put aside", ["customer"]),
}


def listed(name: str) -> dict:
    _, description, names = TOOLS[name]
    schema = {"type": "object", "properties": {each: {"type": "string"} for each in names}, "required": names}
    return {"name": name, "description": description, "inputSchema": schema}


def call(name: str, arguments: dict) -> dict:
    """The result of a tool call. Errors: KeyError and TypeError for a tool or arguments that there are not."""
    shop = json.loads(SHOP.read_text(encoding="utf-8"))
    text = TOOLS[name][0](shop, **arguments)
    SHOP.write_text(json.dumps(shop, indent=1), encoding="utf-8")
    return {"content": [{"type": "text", "text": text}], "isError": False}


def answer(method: str, params: dict) -> dict:
    if method == "initialize":
        about = {"name": "corner-shop", "version": "1"}
        return {"protocolVersion": PROTOCOL, "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [listed(name) for name in TOOLS]}
    if method == "tools/call":
        return call(params["name"], params.get("arguments", {}))
    raise LookupError(method)


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue  # a notification
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        reply["result"] = answer(message["method"], message.get("params", {}))
    except (KeyError, TypeError) as error:
        reply["error"] = {"code": INVALID_PARAMS, "message": f"invalid params: {error}"}
    except LookupError as error:
        reply["error"] = {"code": NO_METHOD, "message": f"method not found: {error}"}
    print(json.dumps(reply), flush=True)
