"""The only way out of a sandbox: a loopback port inside it that leads to the model API's unix socket outside.

``python -I -S door.py PORT SOCKET COMMAND...`` listens, starts the command, forwards bytes until the command ends, and
ends as it did. Standard library only and started for every sandboxed agent, so it imports little. The program around
the sandbox ignores SIGTERM, and so do we, so that an agent that is asked to end can still say its last words; the agent
itself gets the signals' usual meaning back.
"""

import os
import signal
import socket
import sys
import threading

CHUNK = 1 << 16
QUIET = (signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ)


def main(port: int, path: str, command: list[str]) -> int:
    """The exit status of ``command``, in a shell's spelling."""
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    agent = os.posix_spawn(command[0], command, os.environ, setsigdef=QUIET)
    threading.Thread(target=serve, args=(listener, path), daemon=True).start()
    _, status = os.waitpid(agent, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def serve(listener: socket.socket, path: str) -> None:
    while True:
        inside, _ = listener.accept()
        threading.Thread(target=connect, args=(inside, path), daemon=True).start()


def connect(inside: socket.socket, path: str) -> None:
    """Join one connection with one to the model API; a model API that is gone shows as a closed connection."""
    outside = socket.socket(socket.AF_UNIX)
    try:
        outside.connect(path)
        inside.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = threading.Thread(target=forward, args=(outside, inside), daemon=True)
        answers.start()
        forward(inside, outside)
        answers.join()
    except OSError:
        pass
    finally:
        inside.close()
        outside.close()


def forward(source: socket.socket, target: socket.socket) -> None:
    """Pass bytes on until the source says no more, and say so; when either breaks, end both."""
    try:
        while data := source.recv(CHUNK):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


if __name__ == "__main__":
    os._exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
