"""Reads a local .jsonl file strictly: every row is good, or none is used.

Refuses, with file and line, whatever other loaders turn into the text "None", drop, or train on unseen.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from clockgate_trainer.data.formats import COLUMNS, Pair, format_with, pair_of
from clockgate_trainer.errors import ConfigError

MAX_PROBLEMS = 20
_NOT_YET = (".json", ".csv", ".tsv", ".parquet", ".txt", ".gz", ".zst")
_TYPES = {dict: "an object", list: "an array", bool: "true or false", int: "a number", float: "a number"}


class BadRowError(Exception):
    """What is wrong with one line, and what was wanted."""


def read_pairs(path: Path, format_name: str, limit: int | None) -> tuple[Pair, ...]:
    """The first `limit` rows of `path` (all when None), blank lines left out.

    Raises ConfigError with up to MAX_PROBLEMS lines of file:line and problem; reading goes on until then, so that one
    run shows them all.
    """
    _check_path(path)
    pairs: list[Pair] = []
    problems: list[str] = []
    try:
        with path.open("rb") as lines:
            for number, raw in _filled(lines):
                try:
                    pairs.append(pair_from_line(raw, format_name, number))
                except BadRowError as bad:
                    problems.append(f"{path}:{number}: {bad}")
                if len(problems) == MAX_PROBLEMS or len(pairs) == limit:
                    break
    except OSError as err:
        raise ConfigError(f"{path} cannot be read: {err.strerror}. Give a readable .jsonl file to --dataset") from err
    if problems:
        raise ConfigError(_report(problems))
    if not pairs:
        raise ConfigError(f"{path} has no rows: wanted one JSON object per line")
    return tuple(pairs)


def pair_from_line(raw: bytes, format_name: str, line: int) -> Pair:
    """The pair in one line. Raises BadRowError, and nothing else, for any bytes."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as err:
        found = f"byte {err.start + 1} is {raw[err.start]:#04x}, which is not UTF-8"
        raise BadRowError(f"{found}: save the file as UTF-8") from None
    try:
        row = json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise BadRowError("not JSON that can be read: nested too deeply") from None
    except ValueError as err:
        raise BadRowError(f"not JSON: {err}") from None
    if not isinstance(row, dict):
        raise BadRowError(f"{_name_of(row)} where an object is wanted")
    return pair_of(format_name, _texts(row, format_name), line)


def _check_path(path: Path) -> None:
    if path.suffix in _NOT_YET:
        raise ConfigError(f"--dataset {path}: {path.suffix} files are not supported yet; wanted a .jsonl file")
    # os.path: a name that is too long, or in a folder that may not be entered, counts as not there.
    if not os.path.exists(path):  # noqa: PTH110
        raise ConfigError(
            f"--dataset {path}: no such file; wanted a local .jsonl file (named hub data sets are not supported yet)"
        )
    if not path.is_file():
        raise ConfigError(f"--dataset {path} is not a file; wanted a .jsonl file")


def _filled(lines: Iterable[bytes]) -> Iterable[tuple[int, bytes]]:
    """Lines with anything in them, numbered from 1; a byte order mark at the start is left out."""
    for number, raw in enumerate(lines, start=1):
        kept = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        if kept.strip():
            yield number, kept


def _object(items: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(items)
    if len(row) != len(items):
        names = [name for name, _ in items]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadRowError(f"key {twice!r} is there twice: wanted once")
    return row


def _texts(row: dict[str, Any], format_name: str) -> dict[str, str]:
    """The columns of the format, all of them text that can be encoded. Raises BadRowError."""
    wanted = COLUMNS[format_name]
    missing = [name for name in wanted.needed if name not in row]
    if missing:
        raise BadRowError(_missing(missing, row))
    texts = {name: row[name] for name in (*wanted.needed, *wanted.optional) if name in row}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise BadRowError(f"{name} is {_name_of(value)} where text is wanted")
        try:
            value.encode()
        except UnicodeEncodeError as err:
            found = f"\\u{ord(value[err.start]):04x}"
            raise BadRowError(
                f"{name} holds half of a surrogate pair, {found}, which is no text: repair the row"
            ) from None
    return texts


def _missing(names: list[str], row: dict[str, Any]) -> str:
    has = ", ".join(repr(name)[1:-1] for name in row) or "nothing"
    other = format_with(frozenset(row))
    hint = f"; --dataset_format {other} would fit" if other else ""
    return f"column {', '.join(names)} is missing: the row has {has}{hint}"


def _name_of(value: Any) -> str:
    return "null" if value is None else _TYPES.get(type(value), "text")


def _report(problems: list[str]) -> str:
    more = "; there may be more" if len(problems) == MAX_PROBLEMS else ""
    rows = "1 bad row" if len(problems) == 1 else f"{len(problems)} bad rows"
    head = f"the data set has {rows}{more}. Nothing was trained. Repair or remove:"
    return "\n  ".join([head, *problems])
