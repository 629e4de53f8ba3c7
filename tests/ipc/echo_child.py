"""A child process for the ipc tests. ``python -m echo_child [deaf]``; ``deaf`` outlives its lifeline."""

from __future__ import annotations

import os
import sys
import threading

from relaxforge.ipc.child import ChildChannel
from relaxforge.ipc.frames import Frame


def answer(channel: ChildChannel, frame: Frame) -> None:
    if frame.method == "echo":
        channel.reply(frame, frame.body)
    elif frame.method == "count":
        for number in range(frame.body):
            channel.event(frame, number)
        channel.reply(frame, "counted")
    elif frame.method == "fail":
        channel.fail(frame, ValueError(frame.body))
    elif frame.method == "die":
        os._exit(frame.body)
    elif frame.method == "environment":
        channel.reply(frame, dict(os.environ))
    # Anything else is never answered.


def main() -> None:
    deaf = "deaf" in sys.argv
    channel = ChildChannel(lifeline_exit=None if deaf else 7)
    told = ""
    for frame in channel:
        if frame.kind == "notice":
            told = frame.body
        elif frame.method == "told":
            channel.reply(frame, told)
        else:
            answer(channel, frame)
    threading.Event().wait()


if __name__ == "__main__":
    main()
