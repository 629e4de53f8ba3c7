"""Asks once, then waits until a file appears: a Session that a test can hold in the middle of a step."""

import os
import time
from pathlib import Path

from chat import ask, finish, task

given = task()
ask(given["messages"])
hold = given["metadata"].get("hold")
if hold is not None:
    (Path(hold).parent / f"agent-{os.getpid()}").touch()
    deadline = time.monotonic() + 60
    while not Path(hold).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
finish(reward=1.0 if os.getpid() % 2 else 0.5)
