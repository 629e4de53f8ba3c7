"""The files of one environment version: read from a folder, digested, packed, unpacked. Nothing here runs anything.

A bundle is at most ``MOST_BYTES`` and lives in memory, so what was digested is what is packed and laid out. Only
regular files belong to it: no links, no special files, no empty folders; ``LEFT_OUT`` names are skipped when a folder
is read. A package comes from outside and is believed in nothing: every name, kind and size is checked before its
content is read, and at the end the digest.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, cast

from relaxforge.core.errors import BundleError
from relaxforge.environments.manifest import NAME, Manifest, inside, read_manifest

MIB = 1 << 20
MOST_BYTES = 64 * MIB
MOST_FILES = 5000
LONGEST_PATH = 512
LONGEST_NAME = 255
"""Bytes that file systems allow for one part of a path."""
LEFT_OUT = frozenset((".git", "__pycache__", ".DS_Store"))
"""Names that tools leave behind and that are never part of a version."""

_BLOCK_ALLOWANCE = 4 * 512
"""Bytes that a tar archive may spend on one file beside its content: header, long name, padding."""


@dataclass(frozen=True, slots=True)
class BundleFile:
    """One file; ``path`` is relative and in posix spelling."""

    path: str
    content: bytes = field(repr=False)
    executable: bool = False

    @property
    def listed(self) -> dict[str, object]:
        """What is shown of a file without its content."""
        digest = hashlib.sha256(self.content).hexdigest()
        return {"path": self.path, "size": len(self.content), "sha256": digest, "executable": self.executable}


@dataclass(frozen=True, slots=True)
class Bundle:
    """An environment version: its manifest, its files by path in sorted order, and what they are addressed by."""

    manifest: Manifest
    files: tuple[BundleFile, ...]
    digest: bytes

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(len(file.content) for file in self.files)

    def content(self, path: str) -> bytes | None:
        """The content of one file; ``None`` without it."""
        wanted = str(PurePosixPath(path))
        return next((file.content for file in self.files if file.path == wanted), None)

    def below(self, folder: str) -> bool:
        """Whether any file lies in ``folder``."""
        return folder == "." or any(PurePosixPath(file.path).is_relative_to(folder) for file in self.files)


def read_bundle(folder: str | Path, *, most_bytes: int = MOST_BYTES) -> Bundle:
    """The bundle in ``folder``. Sizes are summed up before anything is read. Errors: ``BundleError``."""
    root = Path(folder)
    if not root.is_dir():
        raise BundleError(f"{root} is not a folder; name the one with {NAME}")
    found = sorted(_walk(root, PurePosixPath()))
    _within(sum(size for _, size in found), len(found), most_bytes)
    files = (BundleFile(path, *_read(root / path, path, size)) for path, size in found)
    return _bundle(files)


def pack(bundle: Bundle) -> bytes:
    """The bundle as a tar.gz; equal bundles give equal bytes."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=6, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for file in bundle.files:
            member = tarfile.TarInfo(file.path)
            member.size, member.mode = len(file.content), 0o755 if file.executable else 0o644
            archive.addfile(member, io.BytesIO(file.content))
    return packed.getvalue()


def open_bundle(blob: bytes, digest: bytes | None = None, *, most_bytes: int = MOST_BYTES) -> Bundle:
    """The bundle that ``pack`` packed. Errors: ``BundleError``, also when it is not the one with ``digest``."""
    try:
        with (
            gzip.GzipFile(fileobj=io.BytesIO(blob)) as compressed,
            tarfile.open(fileobj=cast("IO[bytes]", _Metered(compressed, most_bytes)), mode="r|") as archive,
        ):
            bundle = _bundle(_members(archive, most_bytes))
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError) as error:
        raise BundleError(f"the package is not a readable tar.gz: {error}; make it with pack") from None
    if digest is not None and bundle.digest != digest:
        raise BundleError(
            f"the package has the digest {bundle.digest.hex()[:16]}..., not {digest.hex()[:16]}...; it was damaged or "
            "exchanged on the way"
        )
    return bundle


def unpack(blob: bytes, target: Path, digest: bytes) -> Bundle:
    """Lay the bundle of a package out below ``target``, which must not exist. Errors: as ``open_bundle``."""
    bundle = open_bundle(blob, digest)
    write_files(bundle.files, target)
    return bundle


def write_files(files: Iterable[BundleFile], target: Path) -> None:
    """Write files below ``target``, a new folder that nobody else may enter. Errors: ``OSError``."""
    target.mkdir(mode=0o700, parents=True)
    for file in files:
        path = target / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        if file.executable:
            path.chmod(0o755)


def _bundle(files: Iterable[BundleFile]) -> Bundle:
    ordered = tuple(sorted(files, key=lambda file: file.path))
    manifest_file = next((file for file in ordered if file.path == NAME), None)
    if manifest_file is None:
        raise BundleError(f"there is no {NAME} at the top of the bundle; it says what to run")
    try:
        manifest = read_manifest(manifest_file.content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BundleError(f"{NAME} is not valid UTF-8: {error}") from None
    bundle = Bundle(manifest, ordered, _digest(ordered))
    _check_places(bundle)
    return bundle


def _digest(files: tuple[BundleFile, ...]) -> bytes:
    """SHA-256 over one line per file: its kind, the SHA-256 of its content, its path."""
    whole = hashlib.sha256(b"relaxforge bundle 1\n")
    for file in files:
        content = hashlib.sha256(file.content).hexdigest()
        whole.update(f"{'x' if file.executable else '-'} {content} {file.path}\n".encode())
    return whole.digest()


def _check_places(bundle: Bundle) -> None:
    """Every path that the manifest names is there, and no file stands where another one needs a folder."""
    paths = {file.path for file in bundle.files}
    for file in bundle.files:
        if blocked := next((str(above) for above in PurePosixPath(file.path).parents if str(above) in paths), None):
            raise BundleError(f"{blocked} is a file, and {file.path} needs a folder of that name")
    manifest, evaluator = bundle.manifest, bundle.manifest.evaluator
    if not bundle.below(str(inside(manifest.agent.cwd, "agent.cwd"))):
        raise BundleError(f"{NAME}: agent.cwd {manifest.agent.cwd!r} is no folder of the bundle")
    if manifest.tasks.path and bundle.content(manifest.tasks.path) is None:
        raise BundleError(f"{NAME}: tasks.path {manifest.tasks.path!r} is no file of the bundle")
    if evaluator is None:
        return
    folder = str(PurePosixPath(evaluator.folder))
    if not bundle.below(folder):
        raise BundleError(
            f"{NAME}: evaluator.folder {evaluator.folder!r} is no folder of the bundle; the evaluator's files belong "
            "there, out of the agent's sight"
        )
    if evaluator.python:
        module = evaluator.python.rpartition(".")[0].replace(".", "/")
        if not any(bundle.content(f"{folder}/{module}{end}") is not None for end in (".py", "/__init__.py")):
            raise BundleError(f"{NAME}: evaluator.python {evaluator.python!r}: there is no {folder}/{module}.py")


def _walk(root: Path, below: PurePosixPath) -> Iterator[tuple[str, int]]:
    """Path and size of every file. Errors: ``BundleError`` for anything that is no regular file."""
    try:
        entries = sorted(os.scandir(root / below), key=lambda entry: entry.name)
        for entry in entries:
            path = below / entry.name
            if entry.name in LEFT_OUT:
                continue
            _check_path(str(path))
            mode = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(mode.st_mode):
                yield from _walk(root, path)
            elif stat.S_ISREG(mode.st_mode):
                yield str(path), mode.st_size
            else:
                raise BundleError(f"{path} is {_kind(mode.st_mode)}; a bundle holds regular files only")
    except OSError as error:
        raise BundleError(f"{root / below} cannot be read: {error.strerror or error}") from error


def _read(path: Path, name: str, size: int) -> tuple[bytes, bool]:
    """Content and executable bit. A file that changed since it was counted is refused."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            content = file.read(size + 1)
            mode = os.fstat(descriptor).st_mode
    except OSError as error:
        raise BundleError(f"{name} cannot be read: {error.strerror or error}") from error
    if len(content) != size:
        raise BundleError(f"{name} changed while it was read; try again when nobody writes to the folder")
    return content, bool(mode & 0o100)


def _members(archive: tarfile.TarFile, most_bytes: int) -> Iterator[BundleFile]:
    total, seen = 0, set[str]()
    for member in archive:
        _check_path(member.name)
        if not member.isreg():
            raise BundleError(f"{member.name} is not a regular file; a bundle holds regular files only")
        if member.name in seen:
            raise BundleError(f"{member.name} occurs twice in the package")
        seen.add(member.name)
        total += max(0, member.size)
        _within(total, len(seen), most_bytes)
        content = archive.extractfile(member)
        assert content is not None  # noqa: S101  (regular files have content)
        yield BundleFile(member.name, content.read(), bool(member.mode & 0o100))


def _check_path(path: str) -> None:
    parts = PurePosixPath(path).parts
    sound = path and str(PurePosixPath(path)) == path and not path.startswith("/") and ".." not in parts
    if not sound or "\\" in path:
        raise BundleError(f"{path!r:.200} leads out of the bundle, or is not spelled as a plain relative path")
    if not path.isprintable():
        raise BundleError(f"{path!r:.200} has characters that cannot be shown; rename the file")
    if len(path.encode()) > LONGEST_PATH:
        raise BundleError(f"{path:.80}... has a path of more than {LONGEST_PATH} bytes")
    if any(len(part.encode()) > LONGEST_NAME for part in parts):
        raise BundleError(f"{path:.80}... has a name of more than {LONGEST_NAME} bytes in it; no disk can hold it")


def _within(total: int, files: int, most_bytes: int) -> None:
    if total > most_bytes:
        raise BundleError(
            f"the bundle has {total / MIB:.1f} MiB; at most {most_bytes / MIB:g} MiB can be published. Leave out what "
            "the world command can make, or put large data on the workers' machines"
        )
    if files > MOST_FILES:
        raise BundleError(f"the bundle has more than {MOST_FILES} files; pack data into fewer files")


def _kind(mode: int) -> str:
    kinds = {stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


class _Metered:
    """What a decompressor gives, up to what a bundle can have: a small package cannot become a large one."""

    def __init__(self, source: gzip.GzipFile, most_bytes: int) -> None:
        self._source = source
        self._left = most_bytes + (MOST_FILES + 1) * (_BLOCK_ALLOWANCE + 2 * LONGEST_PATH)

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise BundleError("the package grows beyond what a bundle may have when it is unpacked")
        return data
