"""The only way out of a sandbox: a loopback port inside it that leads to the model API's unix socket outside.

``python -I -S door.py PORT SOCKET COMMAND...`` listens, starts the command, forwards bytes until the command ends, and
ends as it did. The program around the sandbox ignores SIGTERM, and so do we, so that an agent that is asked to end can
still say its last words; the agent itself gets the signals' usual meaning back.

It is started once for every agent, so it uses the modules beneath socket, threading and signal: importing those takes
longer than starting Python does.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import _thread
import os
import sys

CHUNK = 1 << 16
QUIET = (_signal.SIGTERM, _signal.SIGPIPE, _signal.SIGXFSZ)


def main(port: int, path: str, command: list[str]) -> int:
    """The exit status of ``command``, in a shell's spelling."""
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    agent = os.posix_spawn(command[0], command, os.environ, setsigdef=QUIET)
    _thread.start_new_thread(serve, (listener, path))
    _, status = os.waitpid(agent, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def serve(listener: _socket.socket, path: str) -> None:
    while True:
        descriptor, _ = listener._accept()  # type: ignore[attr-defined]  # noqa: SLF001  (as socket.accept does)
        inside = _socket.socket(fileno=descriptor)
        _thread.start_new_thread(connect, (inside, path))


def connect(inside: _socket.socket, path: str) -> None:
    """Join one connection with one to the model API; a model API that is gone shows as a closed connection."""
    outside = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    answered = _thread.allocate_lock()
    try:
        outside.connect(path)
        inside.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        answered.acquire()
        _thread.start_new_thread(forward, (outside, inside, answered))
        forward(inside, outside)
        answered.acquire()
    except OSError:
        pass
    finally:
        inside.close()
        outside.close()


def forward(source: _socket.socket, target: _socket.socket, done: _thread.LockType | None = None) -> None:
    """Pass bytes on until the source says no more, and say so; when either breaks, end both."""
    try:
        while data := source.recv(CHUNK):
            target.sendall(data)
        target.shutdown(_socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            try:
                end.shutdown(_socket.SHUT_RDWR)
            except OSError:
                continue
    finally:
        if done is not None:
            done.release()


if __name__ == "__main__":
    os._exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
