"""Asks once, prints its secret, and ends as metadata says: with ``reward``, or with exit status 3."""

import os
import sys

from chat import ask, finish, task

given = task()
ask([*given["messages"], {"role": "user", "content": os.environ.get("SHOP_PASSWORD", "none")}])
sys.stdout.write(f"my password is {os.environ.get('SHOP_PASSWORD')}\n")
if "reward" not in given["metadata"]:
    sys.exit(3)
finish(reward=given["metadata"]["reward"])
