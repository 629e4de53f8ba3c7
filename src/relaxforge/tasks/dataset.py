"""Datasets on disk: every row is checked when one is opened, and read again when it is needed.

A JSONL file costs eight bytes of memory per row (its offset), a Parquet file its needed columns.
"""

from __future__ import annotations

import json
import re
import stat
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec

from relaxforge.core.errors import ConfigError, TaskError
from relaxforge.core.sessions import Task
from relaxforge.tasks.config import DataConfig
from relaxforge.tasks.rows import RowShape, task

_BOM = b"\xef\xbb\xbf"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_BLANK = b" \t\r\n" + _BOM


class Rows(Protocol):
    """The raw rows of one file."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...

    def row(self, index: int) -> Any: ...

    def where(self, index: int) -> str:
        """The place of a row for a reader, ``file:line``."""
        ...


class Dataset:
    """The Tasks of one file, by position. Opening it checks every row. Errors: ``TaskError``."""

    def __init__(self, path: str | Path, shape: RowShape) -> None:
        self.path = Path(path)
        self._shape = shape
        self._rows = _open(self.path, shape)
        if not len(self._rows):
            raise TaskError(f"{self.path}: the dataset is empty; it needs one JSON object per line")
        for index, row in enumerate(self._rows):
            task(row, index, self._rows.where(index), shape)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Task:
        return task(self._rows.row(index), index, self._rows.where(index), self._shape)


def open_training(config: DataConfig) -> Dataset:
    """The dataset to train on. Errors: ``TaskError``."""
    shape = RowShape(config.input_key, config.metadata_key, config.label_key, config.system_prompt)
    return Dataset(config.prompt_data, shape)


def open_held_out(config: DataConfig) -> dict[str, Dataset]:
    """The held-out datasets by name, in the order given. Errors: ``TaskError``."""
    shape = RowShape(
        config.eval_input_key or config.input_key,
        config.metadata_key,
        config.eval_label_key or config.label_key,
        config.system_prompt,
    )
    return {name: Dataset(path, shape) for name, path in config.eval_datasets}


def _open(path: Path, shape: RowShape) -> Rows:
    _check_file(path)
    if path.suffix == ".parquet":
        return ParquetRows(path, shape.columns)
    if path.suffix in (".jsonl", ".ndjson"):
        return JsonLines(path)
    raise TaskError(f"{path}: a dataset is a .jsonl, .ndjson or .parquet file, not {path.suffix or 'without suffix'}")


def _check_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise TaskError(f"{path}: no such dataset file (looked in {Path.cwd()})") from None
    except (OSError, ValueError) as error:
        raise TaskError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if stat.S_ISDIR(mode):
        raise TaskError(f"{path} is a folder; name a .jsonl or .parquet file in it")
    if not stat.S_ISREG(mode):
        raise TaskError(f"{path} is not a regular file; rows are read more than once, so write them to a file first")


class JsonLines:
    """Rows of a JSONL file by byte offset; blank lines are skipped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets = array("q")
        self._lines = array("i")
        try:
            with path.open("rb") as file:
                self._index(file)
        except OSError as error:
            raise TaskError(f"{path}: cannot be read: {error.strerror}") from error

    def _index(self, lines: Iterable[bytes]) -> None:
        offset = 0
        for number, line in enumerate(lines, start=1):
            if line.strip(_BLANK):
                self._offsets.append(offset)
                self._lines.append(number)
            offset += len(line)

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[Any]:
        with self._path.open("rb") as file:
            for index, line in enumerate(line for line in file if line.strip(_BLANK)):
                yield self._decode(line, index)

    def row(self, index: int) -> Any:
        with self._path.open("rb") as file:
            file.seek(self._offsets[index])
            return self._decode(file.readline(), index)

    def _decode(self, line: bytes, index: int) -> Any:
        line = line.removeprefix(_BOM)
        try:
            return msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            column, reason = _fault(line)
            raise TaskError(f"{self.where(index)}:{column}: invalid JSON: {reason or error}") from error
        except RecursionError as error:
            raise TaskError(f"{self.where(index)}: objects and lists are nested too deep") from error

    def where(self, index: int) -> str:
        return f"{self._path}:{self._lines[index]}"


def _fault(line: bytes) -> tuple[int, str]:
    """The 1-based column at which a line stops being JSON, and why where we know better than the decoder."""
    try:
        json.loads(line, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        return error.colno, ""
    except UnicodeDecodeError as error:
        return error.start + 1, ""
    except ValueError as error:
        return 1, str(error)
    return 1, "half of a surrogate pair (\\ud800 to \\udfff)" if _SURROGATE.search(line) else ""


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number; write null, or leave it out")


class ParquetRows:
    """Rows of a Parquet file: the columns that Tasks need, kept in Arrow's compact form."""

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise ConfigError(
                f"{path}: Parquet needs pyarrow; install it with: pip install 'relaxforge[parquet]'"
            ) from None
        self._path = path
        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                names: list[str] = file.schema_arrow.names
                self._length = file.metadata.num_rows
                self._table = file.read(columns=[name for name in names if name in columns])
        except (OSError, pyarrow.ArrowException) as error:
            raise TaskError(f"{path}: not a readable Parquet file: {error}") from error
        self._unread = [name for name in names if name not in columns]

    def __len__(self) -> int:
        return int(self._length)

    def __iter__(self) -> Iterator[Any]:
        return (self.row(index) for index in range(len(self)))

    def row(self, index: int) -> Any:
        # The columns nobody asked for stay unread; their names are enough for an error message.
        unread: dict[str, Any] = dict.fromkeys(self._unread)
        return {**self._table.slice(index, 1).to_pylist()[0], **unread} if self._table.num_columns else unread

    def where(self, index: int) -> str:
        return f"{self._path}: row {index + 1}"
