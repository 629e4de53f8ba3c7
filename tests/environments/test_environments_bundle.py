"""Bundles: content-addressed, and nothing that comes from outside is believed."""

import gzip
import io
import os
import socket
import tarfile
import time
from pathlib import Path

import pytest
from bundle_folder import MANIFEST, write_bundle
from hypothesis import given
from hypothesis import strategies as st

from relaxforge.core.errors import BundleError
from relaxforge.environments.bundle import (
    MIB,
    MOST_FILES,
    Bundle,
    BundleFile,
    open_bundle,
    pack,
    read_bundle,
    unpack,
    write_files,
)

SHOP = Path(__file__).parents[2] / "examples" / "03-corner-shop"


def archive(*members: tarfile.TarInfo, content: bytes = b"") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(content.ljust(member.size, b"\0")) if member.isreg() else None)
    return packed.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, linkname: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, linkname
    return info


def test_the_example_survives_packing_and_unpacking(tmp_path):
    bundle = read_bundle(SHOP)
    blob = pack(bundle)
    assert blob == pack(read_bundle(SHOP)), "packing is deterministic"
    assert unpack(blob, tmp_path / "copy", bundle.digest) == bundle
    assert read_bundle(tmp_path / "copy") == bundle


def test_the_digest_follows_content_names_and_the_executable_bit_and_nothing_else(tmp_path):
    folder = write_bundle(tmp_path)
    before = read_bundle(folder).digest
    os.utime(folder / "agent.py", (1, 1))
    (folder / "agent.py").chmod(0o600)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "agent.pyc").touch()
    (folder / "empty").mkdir()
    assert read_bundle(folder).digest == before
    (folder / "agent.py").chmod(0o755)
    executable = read_bundle(folder).digest
    (folder / "agent.py").chmod(0o644)
    (folder / "agent.py").rename(folder / "agent2.py")
    renamed = read_bundle(folder).digest
    (folder / "agent2.py").write_text("other\n")
    assert len({before, executable, renamed, read_bundle(folder).digest}) == 4


def test_the_executable_bit_is_laid_out_again(tmp_path):
    folder = write_bundle(tmp_path / "in")
    (folder / "agent.py").chmod(0o755)
    write_files(open_bundle(pack(read_bundle(folder))).files, tmp_path / "out")
    assert os.access(tmp_path / "out" / "agent.py", os.X_OK)
    assert not os.access(tmp_path / "out" / "tasks.jsonl", os.X_OK)


def test_two_gigabytes_are_refused_before_anything_is_read(tmp_path):
    folder = write_bundle(tmp_path)
    with (folder / "weights.bin").open("wb") as file:
        file.truncate(2 << 30)
    began = time.monotonic()
    with pytest.raises(BundleError, match=r"has 2048\.0 MiB; at most 64 MiB can be published"):
        read_bundle(folder)
    assert time.monotonic() - began < 1


def test_too_many_files_are_refused(tmp_path):
    folder = write_bundle(tmp_path)
    (folder / "data").mkdir()
    for number in range(MOST_FILES):
        (folder / "data" / str(number)).touch()
    with pytest.raises(BundleError, match=f"more than {MOST_FILES} files"):
        read_bundle(folder)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda path: path.symlink_to("/etc/passwd"), "a symbolic link"),
        (lambda path: path.symlink_to("agent.py"), "a symbolic link"),
        (os.mkfifo, "a pipe"),
        (lambda path: socket.socket(socket.AF_UNIX).bind(str(path)), "a socket"),
    ],
    ids=["link out", "link in", "pipe", "socket"],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_only_regular_files_belong_to_a_bundle(tmp_path, make, what):
    make(write_bundle(tmp_path) / "odd")
    with pytest.raises(BundleError, match=f"odd is {what}; a bundle holds regular files only"):
        read_bundle(tmp_path)


@pytest.mark.parametrize("name", ["new\nline", "back\\slash", "x" * 255 + "/" + "y" * 255 + "/z"])
def test_names_that_would_be_misread_are_refused(tmp_path, name):
    path = write_bundle(tmp_path) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    with pytest.raises(BundleError):
        read_bundle(tmp_path)


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        (MANIFEST.replace("tasks.jsonl", "rows.jsonl"), "tasks.path 'rows.jsonl' is no file of the bundle"),
        (MANIFEST.replace("[tasks]", 'folder = "judge"\n[tasks]'), "evaluator.folder 'judge' is no folder"),
        (MANIFEST.replace("[evaluator]", 'cwd = "src"\n[evaluator]'), "agent.cwd 'src' is no folder"),
        (MANIFEST.replace('command = "python3 e', 'python = "judge.run"  # '), r"there is no evaluator/judge\.py"),
    ],
)
def test_what_the_manifest_names_must_be_there(tmp_path, manifest, sentence):
    with pytest.raises(BundleError, match=sentence):
        read_bundle(write_bundle(tmp_path, manifest))


def test_a_folder_without_a_manifest_and_a_missing_folder_say_so(tmp_path):
    (tmp_path / "a.py").touch()
    with pytest.raises(BundleError, match=r"there is no environment\.toml at the top"):
        read_bundle(tmp_path)
    with pytest.raises(BundleError, match="is not a folder"):
        read_bundle(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "a/./b", "a//b", "a\\b", "", "."])
def test_a_package_cannot_write_outside(tmp_path, name):
    with pytest.raises(BundleError, match=r"leads out of the bundle|no environment"):
        unpack(archive(member(name)), tmp_path / "copy", b"")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_a_package_holds_regular_files_only(kind):
    with pytest.raises(BundleError, match="x is not a regular file"):
        open_bundle(archive(member("x", kind, linkname="/etc/passwd")))


def test_a_member_that_claims_to_be_huge_is_refused_unread():
    header = member("x", size=8 << 30).tobuf()
    began = time.monotonic()
    with pytest.raises(BundleError, match=r"has 8192\.0 MiB"):
        open_bundle(gzip.compress(header + b"\0" * 1024))
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_small_package_does_not_become_a_large_one(kind):
    bomb = gzip.compress(member("x", kind, size=4 << 30).tobuf() + b"\0" * (200 * MIB), compresslevel=1)
    assert len(bomb) < 2 * MIB
    with pytest.raises(BundleError, match=r"grows beyond|more than|MiB"):
        open_bundle(bomb)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [(("a", "a/b"), "a is a file, and a/b needs a folder"), (("x" * 256,), "a name of more than 255 bytes")],
)
def test_files_that_no_disk_can_hold_are_refused_when_they_come(tmp_path, names, sentence):
    bundle = read_bundle(write_bundle(tmp_path))
    more = tuple(BundleFile(name, b"") for name in names)
    with pytest.raises(BundleError, match=sentence):
        open_bundle(pack(Bundle(bundle.manifest, (*bundle.files, *more), b"")))


def test_a_name_that_occurs_twice_is_refused():
    with pytest.raises(BundleError, match="occurs twice"):
        open_bundle(archive(member("x"), member("x")))


def test_a_damaged_or_exchanged_package_is_noticed(tmp_path):
    one, other = (read_bundle(write_bundle(tmp_path / name, agent_py=name)) for name in ("one", "other"))
    with pytest.raises(BundleError, match="it was damaged or exchanged"):
        open_bundle(pack(other), one.digest)
    for blob in (b"", b"no archive", pack(one)[:-20], pack(one)[:40] + b"\0\0" + pack(one)[42:]):
        with pytest.raises(BundleError):
            open_bundle(blob, one.digest)


@given(st.binary(max_size=3000))
def test_no_bytes_at_all_make_it_stumble(data):
    for blob in (data, gzip.compress(data)):
        with pytest.raises(BundleError):
            open_bundle(blob)


def test_the_path_of_content_is_forgiving_and_its_absence_is_none(tmp_path):
    bundle: Bundle = read_bundle(write_bundle(tmp_path))
    assert bundle.content("./agent.py") == b"pass\n"
    assert bundle.content("nothing") is None
    assert bundle.size == sum(len(file.content) for file in bundle.files)
