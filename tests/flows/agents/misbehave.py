"""One way of going wrong per metadata["how"]; everybody else in the Group behaves."""

import os
import signal
import subprocess
import sys
import time

from chat import ask, finish, task

given = task()
how = given["metadata"]["how"]
only = given["metadata"].get("only")
behaves = only is not None and not os.environ["RELAX_SESSION_ID"].split(".")[0].endswith(only)


def write(text):
    with open(os.environ["RELAX_OUTPUT_JSON"], "w", encoding="utf-8") as file:
        file.write(text)


def hang():
    signal.pause()


if behaves:
    ask(given["messages"])
    finish(reward=0.5)
    sys.exit(0)
if how == "silent":
    finish(reward=1.0)
    sys.exit(0)
if how == "hang_before":
    hang()
if how == "wrong_key":
    ask(given["messages"], session_id="nobody.0123")
ask(given["messages"])
if how == "exit_3":
    sys.stdout.write("giving up\n")
    sys.exit(3)
if how == "hang_after":
    hang()
if how == "orphan":
    stubborn = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", stubborn], start_new_session=True)
    finish(reward=1.0, metadata={"child": child.pid})
if how == "half_output":
    write('{"reward": 1.')
if how == "reward_nan":
    write('{"reward": NaN}')
if how == "reward_text":
    write('{"reward": "high"}')
if how == "no_reward":
    write('{"metadata": {}}')
if how == "loud":
    block = "x" * 1023 + "\n"
    for _ in range(200 * 1024):
        sys.stdout.write(block)
    sys.stdout.flush()
    sys.exit(4)
if how == "wrong_export":
    write('{"name": "main", "messages": [{"role": "user", "content": "never said"}], "reward": 1.0}')
if how == "too_long":
    try:
        ask([{"role": "user", "content": "word " * 4000}])
    except Exception as error:
        sys.stdout.write(error.read().decode())
        sys.exit(5)
if how == "slow":
    time.sleep(0.5)
