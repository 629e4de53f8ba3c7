"""Looks at the shop after the agent has gone: was the stock looked at, and was the right thing ordered?"""

import json
import os
from pathlib import Path

shop = json.loads(Path(os.environ["RELAX_WORLD_DIR"], "shop.json").read_text(encoding="utf-8"))
task = json.loads(Path(os.environ["RELAX_INPUT_JSON"]).read_text(encoding="utf-8"))["metadata"]

ordered = [order for order in shop["orders"] if order["customer"] == task["customer"]]
shelves = sum(order["items"].get(task["item"], 0) for order in ordered)
had = shop["stock"][task["item"]] + shelves + shop["reserved"].get(task["item"], 0)

verdict = {
    "reward": 1.0 if shelves == had else 0.5 if shelves >= task["at_least"] else 0.15 if shop["looked"] else 0.0,
    "stage_inventory": int(shop["looked"]),
    "stage_checkout": int(shelves >= task["at_least"]),
    "orders": len(shop["orders"]),
}
if not ordered:
    verdict["failure_category"] = "nothing_ordered"
elif shelves < task["at_least"]:
    verdict["failure_category"] = "wrong_item"
Path(os.environ["RELAX_EVALUATION_OUTPUT"]).write_text(json.dumps(verdict), encoding="utf-8")
