"""Local data files: which reader a file gets, and what its rows mean. Every row is an example or a fault."""

import os
from collections.abc import Iterator
from pathlib import Path

from clockgate_trainer.data.delimited import delimited_rows
from clockgate_trainer.data.formats import Example, doubts_about, example_of
from clockgate_trainer.data.json_rows import array_rows, line_rows
from clockgate_trainer.data.parquet_rows import parquet_rows
from clockgate_trainer.data.record import BadRowError, Fault, Kind, Record
from clockgate_trainer.errors import ConfigError

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
_KINDS = f"a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file"


def check_file(path: Path) -> None:
    """Raise ConfigError when `path` is not there or is no kind of file that is read."""
    # os.path: a name that is too long, or in a folder that may not be entered, counts as not there.
    if not os.path.exists(path):  # noqa: PTH110
        raise ConfigError(f"{path}: no such file; wanted {_KINDS}")
    if not path.is_file():
        raise ConfigError(f"{path} is not a file; wanted {_KINDS}")
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{path} is none of the files that are read: wanted {_KINDS} (unpack it first)")


def file_rows(path: Path) -> Iterator[Record | Fault]:
    """The rows of a file; a fault alone when it is empty or has none. Raises ConfigError when it cannot be read."""
    check_file(path)
    any_found = False
    try:
        if path.stat().st_size == 0:
            yield Fault(None, Kind.EMPTY_FILE, "the file is empty")
            return
        for found in _reader(path):
            any_found = True
            yield found
    except OSError as err:
        raise ConfigError(f"{path} cannot be read: {err.strerror or err}. Give a readable file") from err
    if not any_found:
        yield Fault(None, Kind.NO_ROWS, "the file has no rows")


def examples(rows: Iterator[Record | Fault], format_name: str, limit: int | None = None) -> Iterator[Example | Fault]:
    """What the rows teach, by their format; at most `limit` examples (all when None)."""
    taken = 0
    while limit is None or taken < limit:
        found = next(rows, None)
        if found is None:
            return
        if isinstance(found, Fault):
            yield found
            continue
        try:
            example = example_of(format_name, found.row, found.line)
        except BadRowError as bad:
            yield bad.fault(found.line)
            continue
        taken += 1
        yield from doubts_about(example)
        yield example


def _reader(path: Path) -> Iterator[Record | Fault]:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return parquet_rows(path)
    if suffix in (".csv", ".tsv"):
        return delimited_rows(path, "\t" if suffix == ".tsv" else ",")
    if suffix == ".json":
        data = path.read_bytes()
        if data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
            return array_rows(data)
        return line_rows(iter(data.splitlines(keepends=True)))
    return _lines(path)


def _lines(path: Path) -> Iterator[Record | Fault]:
    with path.open("rb") as lines:
        yield from line_rows(lines)
