"""A real PostgreSQL in a folder, for machines that have none.

It listens on a socket file only, and every role needs its password: an agent on the same machine must not get in.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Self

import psutil
import psycopg

from relaxforge.core.errors import ConfigError, StorageError
from relaxforge.observe.log import get_logger
from relaxforge.store.programs import Programs, find_programs
from relaxforge.store.urls import with_parts

DATABASE = "relaxforge"
_LONGEST_SOCKET_FOLDER = 80
_START_S = 60.0
_LOOK_S = 0.5
_LIFELINE = """exec 3<&0
"$@" </dev/null 3<&- & server=$!
{ cat <&3 >/dev/null; kill -INT $server 2>/dev/null; } &
exec 3<&-
wait $server"""
"""Runs the server until our end of the pipe closes, as it does when we are killed. SIGINT is a fast shutdown."""

log = get_logger()


class EmbeddedPostgres:
    """A server whose data, passwords (``passwords.json``, mode 0600) and log live in ``folder``.

    ``settings`` are PostgreSQL's own (``{"fsync": "off"}`` for tests). ``stop`` and the end of our process end it.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder.absolute()
        self.data = self.folder / "data"
        self._settings = dict(settings or {})
        self._socket: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def admin_url(self) -> str:
        """The superuser's URL of the database ``relaxforge`` while the server runs; holds a password."""
        return self._url(DATABASE)

    @property
    def app_password(self) -> str:
        """For ``admin.install``: the application's password on this server, the same after every start."""
        return self._passwords()["app"]

    @property
    def worker_password(self) -> str:
        """For ``admin.install``: the workers' password on this server, the same after every start."""
        return self._passwords()["worker"]

    @property
    def pid(self) -> int:
        """Process id of the server. Errors: ``StorageError`` when none runs."""
        try:
            return int((self.data / "postmaster.pid").read_text().split()[0])
        except (OSError, IndexError) as error:
            raise StorageError(f"no PostgreSQL runs in {self.folder}") from error

    def start(self) -> None:
        """Create the cluster if there is none, start the server, wait until it answers.

        A server that a killed predecessor left behind is stopped first. Errors: ``ConfigError`` when the folder is in
        use or PostgreSQL is not installed; ``StorageError`` with the end of the log when it does not come up.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.folder / "lock")
        try:
            programs = find_programs(self.folder)
            self._create(programs)
            self._stop_leftover()
            self._process = self._launch(programs)
            self._await_answer(self._process)
        except BaseException:
            self.stop()
            raise

    @contextmanager
    def kept_running(self) -> Iterator[None]:
        """Meanwhile, a server that died (killed, out of memory, a full disk) is started again, at the same address."""
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(over,), name="postgres-watch", daemon=True)
        watch.start()
        try:
            yield
        finally:
            over.set()
            watch.join()

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(_LOOK_S):
            if self._process is None or self._process.poll() is None:
                continue
            log.warning("database_died", path=str(self.folder / "postgres.log"))
            try:
                self._start_again()
            except StorageError as error:
                log.warning("database_restart_failed", error=str(error))

    def _start_again(self) -> None:
        programs = find_programs(self.folder)
        self._let_go()
        self._stop_leftover()
        self._process = self._launch(programs)
        self._await_answer(self._process)

    def stop(self) -> None:
        """Stop the server at once; open transactions are undone. Harmless when none runs."""
        self._let_go()
        if self._socket is not None and self._socket.parent != self.folder:
            shutil.rmtree(self._socket, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()
        self._process = self._socket = self._lock = None

    def _let_go(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()

    def _create(self, programs: Programs) -> None:
        if self.data.exists():
            return
        passwords = {name: secrets.token_urlsafe(24) for name in ("admin", "app", "worker")}
        _write_private(self.folder / "passwords.json", json.dumps(passwords))
        partial, given = self.folder / "data.new", self.folder / "password"
        shutil.rmtree(partial, ignore_errors=True)
        programs.make_folder(partial, 0o700)
        _write_private(given, passwords["admin"])
        programs.give(given)
        flags = ["--auth=scram-sha-256", f"--pwfile={given}", "--username=postgres", "--encoding=UTF8", "--locale=C"]
        try:
            programs.run("initdb", *flags, "-D", str(partial))
        finally:
            given.unlink()
        partial.rename(self.data)

    def _stop_leftover(self) -> None:
        try:
            process = psutil.Process(self.pid)
            if str(self.data) in process.cmdline():
                process.send_signal(signal.SIGINT)
                process.wait(_START_S)
        except (StorageError, psutil.NoSuchProcess):
            return

    def _launch(self, programs: Programs) -> subprocess.Popen[bytes]:
        if self._socket is None:
            self._socket = self.folder / "socket"
            if len(os.fsencode(self._socket)) > _LONGEST_SOCKET_FOLDER:  # a socket file's path has 107 bytes at most
                self._socket = Path(tempfile.mkdtemp(prefix="relaxforge-"))
        programs.make_folder(self._socket, 0o711)
        fixed = {"listen_addresses": "", "unix_socket_directories": str(self._socket), "log_error_verbosity": "terse"}
        flags = [part for name, value in (self._settings | fixed).items() for part in ("-c", f"{name}={value}")]
        server = [str(programs.folder / "postgres"), "-D", str(self.data), *flags]
        with (self.folder / "postgres.log").open("ab") as log:
            return subprocess.Popen(
                ["/bin/sh", "-c", _LIFELINE, "lifeline", *server],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                **programs.identity,
            )

    def _await_answer(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_S
        while process.poll() is None and time.monotonic() < deadline:
            try:
                with psycopg.connect(self._url("postgres"), autocommit=True, connect_timeout=5) as connection:
                    if connection.execute("SELECT FROM pg_database WHERE datname = %s", (DATABASE,)).rowcount == 0:
                        connection.execute(f"CREATE DATABASE {DATABASE}")
                    return
            except psycopg.OperationalError:
                time.sleep(0.02)
        log = (self.folder / "postgres.log").read_text(encoding="utf-8", errors="replace")
        raise StorageError(f"PostgreSQL in {self.folder} did not start; the end of its log:\n{log[-2000:]}")

    def _url(self, database: str) -> str:
        if self._socket is None:
            raise StorageError(f"no PostgreSQL runs in {self.folder}; start it first")
        return with_parts(
            "", user="postgres", password=self._passwords()["admin"], dbname=database, host=str(self._socket)
        )

    def _passwords(self) -> dict[str, str]:
        return dict(json.loads((self.folder / "passwords.json").read_text(encoding="utf-8")))


def _locked(path: Path) -> IO[str]:
    lock = path.open("a", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise ConfigError(f"another RelaxForge uses {path.parent}; stop it, or choose another folder") from None
    return lock


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
