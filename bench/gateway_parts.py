"""What the gateway benches share: servers in processes of their own, a lean client, and the results file."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BENCH = Path(__file__).parent
RESULTS = BENCH / "results"


PATHS = {"chat": "/chat/completions", "responses": "/responses", "messages": "/messages"}


class Conversation:
    """A growing conversation, spelled for one API."""

    def __init__(self, api: str) -> None:
        self.api = api
        self._history: list[Any] = []

    def ask(self, text: str) -> bytes:
        """The body of the next request."""
        self._history.append({"role": "user", "content": text})
        if self.api == "responses":
            return msgspec.json.encode({"model": "m", "input": self._history})
        limit = {"max_tokens": 4096} if self.api == "messages" else {}
        return msgspec.json.encode({"model": "m", "messages": self._history, **limit})

    def hear(self, answer: bytes) -> None:
        """Append the answer as the API's own clients echo it."""
        said = msgspec.json.decode(answer)
        if self.api == "responses":
            self._history += said["output"]
        elif self.api == "messages":
            self._history.append({"role": "assistant", "content": said["content"]})
        else:
            self._history.append({"role": "assistant", "content": said["choices"][0]["message"]["content"]})


@dataclass(frozen=True, slots=True)
class Server:
    """A model API under test. ``keys`` are credentials, one per conversation; ``url`` may hold ``{key}``."""

    name: str
    url: str
    pid: int
    keys: tuple[str, ...]
    admin: str | None = None

    def endpoint(self, number: int, api: str = "chat") -> tuple[str, str]:
        """URL and credential of conversation ``number``."""
        key = self.keys[number % len(self.keys)]
        return self.url.replace("{key}", key) + PATHS[api], key

    def cpu_ms(self) -> float:
        """User and system time of the process so far, all threads."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e6

    def resident_mib(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def running(name: str, script: str, *args: str, python: str = sys.executable, keys: int = 1) -> Iterator[Server]:
    """A server script of this folder, from its first line (its address as JSON) to the end of the block."""
    command = [python, str(BENCH / script), *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stderr=sys.stderr) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise SystemExit(f"{name} did not start: {' '.join(command)}")
            told = json.loads(line)
            own = tuple(told.get("keys") or (f"{name}-{number}" for number in range(keys)))
            yield Server(name, told["url"], told["pid"], own, told.get("admin"))
        finally:
            process.terminate()


class Connection:
    """One kept-alive HTTP connection, blocking, with as little of its own as possible."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 80))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = request_head(url, key)

    def post(self, body: bytes) -> bytes:
        """The body of the answer. Exits with the server's words on any status but 200."""
        self._socket.sendall(self._head % len(body) + body)
        received = self._socket.recv(1 << 20)
        while b"\r\n\r\n" not in received:
            received += self._socket.recv(1 << 20)
        head, _, answer = received.partition(b"\r\n\r\n")
        length = content_length(head)
        while len(answer) < length:
            answer += self._socket.recv(1 << 20)
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"{head.decode()}\n{answer[:2000].decode()}")
        return answer

    def close(self) -> None:
        self._socket.close()


def request_head(url: str, key: str) -> bytes:
    """Head of a POST, with a place for the length of its body."""
    parts = urlsplit(url)
    return (
        f"POST {parts.path} HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {key}\r\ncontent-length: %d\r\n\r\n"
    ).encode()


def content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise SystemExit(f"no content-length in {head.decode()}")


def text_source(length: int) -> str:
    """Ordinary text, the same on every machine with this Python: the sources of its standard library."""
    folder = Path(os.__file__).parent
    text = ""
    for file in sorted(folder.glob("*.py")):
        text += file.read_text(encoding="utf-8", errors="ignore")
        if len(text) >= length:
            return text[:length]
    return (text * (length // len(text) + 1))[:length]


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns aligned on the right; numbers with two decimals."""
    shown = [[f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[column]) for row in shown) for column in range(len(head))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in shown)


def save(claim: str, figures: dict[str, Any], folder: Path) -> Path:
    """Write the figures of one run into ``folder``, with machine, commit and command."""
    now = datetime.now(UTC)
    path = folder / f"{now:%Y-%m-%d}-{claim}.json"
    folder.mkdir(exist_ok=True)
    context = {
        "claim": claim,
        "date": now.isoformat(timespec="seconds"),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "commit": _commit(),
        "machine": {
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "load": os.getloadavg(),
            "python": platform.python_version(),
            "kernel": platform.release(),
        },
    }
    path.write_text(json.dumps({**context, **figures}, indent=1) + "\n", encoding="utf-8")
    return path


def _commit() -> str:
    ran = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=BENCH, capture_output=True, text=True, check=False
    )
    return ran.stdout.strip() or "unknown"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
