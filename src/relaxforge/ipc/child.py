"""The child's end: blocking, thread-safe, and gone as soon as main is gone."""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from relaxforge.ipc.frames import HEADER, Frame, pack, unpack

FD_VARIABLE = "RELAXFORGE_IPC_FD"


class ChildChannel:
    """Requests from main, in order, and answers back.

    A reader thread takes frames off the socket even while the program computes. When the socket closes (main ended,
    however) the process exits at once with ``lifeline_exit``: a child without a main has nothing left to do. Pass
    ``lifeline_exit=None`` to get the end of the iteration (and ``closed``) instead, and clean up first.
    """

    def __init__(self, fd: int | None = None, *, lifeline_exit: int | None = 0) -> None:
        self._socket = socket.socket(fileno=fd if fd is not None else int(os.environ.pop(FD_VARIABLE)))
        self._socket.set_inheritable(False)
        self._lifeline_exit = lifeline_exit
        self._frames: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self.closed = False
        self._write_lock = threading.Lock()
        threading.Thread(target=self._read, name="ipc-reader", daemon=True).start()

    def __iter__(self) -> Iterator[Frame]:
        while (frame := self._frames.get()) is not None:
            yield frame

    def poll(self, timeout_s: float | None = 0.0) -> Frame | None:
        """The next frame if one arrives within ``timeout_s`` (``None``: for ever), else ``None``.

        ``None`` comes once more when the socket closes.
        """
        try:
            return self._frames.get(timeout=timeout_s) if timeout_s != 0.0 else self._frames.get_nowait()
        except queue.Empty:
            return None

    def wake(self) -> None:
        """Make a waiting ``poll`` return a ``wake`` notice. May be called from a signal handler."""
        self._frames.put(Frame("notice", 0, "wake", None))

    def reply(self, frame: Frame, body: Any = None) -> None:
        self._send(Frame("reply", frame.number, frame.method, body))

    def fail(self, frame: Frame, error: BaseException) -> None:
        """Answer with an error; main raises it as the port's own error type with this text."""
        self._send(Frame("error", frame.number, frame.method, f"{type(error).__name__}: {error}"))

    def event(self, frame: Frame, body: Any) -> None:
        self._send(Frame("event", frame.number, frame.method, body))

    def _send(self, frame: Frame) -> None:
        # Nobody reads the answer when main is gone; what that means for the child is the reader's business.
        with self._write_lock, suppress(OSError):
            self._socket.sendall(pack(frame))

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as reader:
                while header := reader.read(HEADER):
                    self._frames.put(unpack(reader.read(int.from_bytes(header, "little"))))
        except (OSError, ValueError):
            pass  # A broken socket means the same as a closed one: main is gone.
        if self._lifeline_exit is not None:
            os._exit(self._lifeline_exit)
        with self._write_lock:
            self._socket.close()
        self.closed = True
        self._frames.put(None)
