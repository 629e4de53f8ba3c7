"""Looks where it should not, asks the model what to make of it, and leaves a process behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

from chat import ask, finish, task

given = task()
run = Path(given["metadata"]["run"])
found = {
    "run": sorted(path.name for path in run.iterdir()) if run.exists() else None,
    "outside": Path(given["metadata"]["outside"]).exists(),
    "home": os.environ["HOME"],
}
ask([{"role": "user", "content": json.dumps(found)}])
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
if given["metadata"].get("wait"):
    Path(os.environ["RELAX_SESSION_IO_DIR"], "waiting").touch()
    subprocess.run(["sleep", "1000"], check=False)
finish(reward=1.0)
