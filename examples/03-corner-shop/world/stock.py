"""Fills the shop: what is in stock depends on RELAX_SEED alone."""

import json
import os
import random
from pathlib import Path

chance = random.Random(int(os.environ["RELAX_SEED"]))
shop = {
    "stock": {"oak-shelf": chance.randint(3, 5), "pine-shelf": chance.randint(2, 9), "lamp": chance.randint(0, 4)},
    "reserved": {},
    "orders": [],
    "looked": False,
}
Path(os.environ["RELAX_WORLD_DIR"], "shop.json").write_text(json.dumps(shop, indent=1), encoding="utf-8")
