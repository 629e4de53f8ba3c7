"""Secrets at rest: keys, their file, and where a ciphertext opens."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaxforge.core.errors import ConfigError, StorageError
from relaxforge.store.vault import Vault, add_key, open_vault

PLACE = ("organization", "environment", "API_KEY")


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "vault.key"


def test_a_key_file_is_made_once_and_only_its_owner_reads_it(key_file):
    sealed = open_vault(key_file).seal("s3cret", PLACE)
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert b"s3cret" not in sealed
    assert open_vault(key_file).open(sealed, PLACE) == "s3cret"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_file_that_others_read_is_refused(key_file, mode):
    open_vault(key_file)
    key_file.chmod(mode)
    with pytest.raises(ConfigError, match="others may read the key file"):
        open_vault(key_file)


def test_a_link_in_place_of_the_key_file_is_refused(key_file, tmp_path):
    open_vault(tmp_path / "other")
    key_file.symlink_to(tmp_path / "other")
    with pytest.raises(ConfigError, match="cannot be read"):
        open_vault(key_file)


@pytest.mark.parametrize("content", ["", "not a key\n"])
def test_a_key_file_without_keys_is_refused(key_file, content):
    key_file.touch(0o600)
    key_file.write_text(content)
    with pytest.raises(ConfigError, match="no usable key"):
        open_vault(key_file)


def test_a_new_key_reads_what_the_old_one_wrote(key_file):
    old = open_vault(key_file)
    before = old.seal("value", PLACE)
    add_key(key_file)
    both = open_vault(key_file)
    assert both.open(before, PLACE) == "value"
    newest = Vault(key_file.read_text().split()[:1])
    assert newest.open(both.seal("value", PLACE), PLACE) == "value"
    assert key_file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(StorageError, match="'API_KEY' was encrypted with a key that the key file does not hold"):
        newest.open(before, PLACE)


def test_a_ciphertext_opens_where_it_was_made_only(key_file):
    vault = open_vault(key_file)
    sealed = vault.seal("value", PLACE)
    with pytest.raises(StorageError, match="another environment"):
        vault.open(sealed, ("organization", "mine", "API_KEY"))
    with pytest.raises(StorageError):
        vault.open(sealed[:-4] + b"AAA=", PLACE)
