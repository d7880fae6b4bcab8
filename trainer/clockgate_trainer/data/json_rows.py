"""Rows of JSON files: one object a line, or one array of objects. Any bytes give rows or faults, never an error."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from clockgate_trainer.data.record import BadRowError, Fault, Kind, Record

_MARK = b"\xef\xbb\xbf"
_BLANK = re.compile(r"[ \t\n\r]*")
_TYPES = {dict: "an object", list: "an array", bool: "true or false", int: "a number", float: "a number"}
_TOO_DEEP = "not JSON that can be read: nested too deeply"


def line_rows(lines: Iterable[bytes]) -> Iterator[Record | Fault]:
    """One object a line; blank lines and a byte order mark are left out."""
    for number, raw in enumerate(lines, start=1):
        kept = raw.removeprefix(_MARK) if number == 1 else raw
        if not kept.strip():
            continue
        try:
            yield Record(number, _row_of(kept))
        except BadRowError as bad:
            yield bad.fault(number)


def array_rows(data: bytes) -> Iterator[Record | Fault]:
    """The objects of one array, each with the line that it begins on. What follows broken JSON is not read."""
    # Bytes that are no UTF-8 become halves of surrogate pairs, so that the rows before and after them are still read.
    text = data.removeprefix(_MARK).decode(errors="surrogateescape")
    twice: list[str] = []
    decoder = json.JSONDecoder(object_pairs_hook=lambda items: _object(items, twice))
    place = _skip(text, _skip(text, 0) + 1)
    counted, line = 0, 1
    while text[place : place + 1] != "]":
        line += text.count("\n", counted, place)
        counted = place
        twice.clear()
        try:
            value, end = decoder.raw_decode(text, place)
        except RecursionError:
            yield Fault(line, Kind.NOT_JSON, f"{_TOO_DEEP}; the rest of the file is not read")
            return
        except ValueError as err:
            where = line + text.count("\n", place, getattr(err, "pos", place))
            yield Fault(where, Kind.NOT_JSON, f"not JSON: {_told(err)}; the rest of the file is not read")
            return
        yield _checked(value, twice, line)
        place = _skip(text, end)
        if text[place : place + 1] == ",":
            place = _skip(text, place + 1)
        elif text[place : place + 1] != "]":
            here = line + text.count("\n", counted, place)
            found = "the file ends" if place == len(text) else f"there is {text[place]!r}"
            yield Fault(here, Kind.NOT_JSON, f"not JSON: {found} where ',' or ']' is wanted; the rest is not read")
            return
    rest = _skip(text, place + 1)
    if rest < len(text):
        yield Fault(
            line + text.count("\n", counted, rest), Kind.NOT_JSON, "not JSON: text follows the end of the array"
        )


def name_of(value: object) -> str:
    """What a JSON value is, in a word."""
    if value is None:
        return "null"
    return "text" if isinstance(value, str) else _TYPES.get(type(value), f"a {type(value).__name__}")


def _row_of(raw: bytes) -> dict[str, Any]:
    try:
        text = raw.decode()
    except UnicodeDecodeError as err:
        found = f"byte {err.start + 1} is {raw[err.start]:#04x}, which is not UTF-8"
        raise BadRowError(Kind.NOT_UTF8, f"{found}: save the file as UTF-8") from None
    twice: list[str] = []
    try:
        value = json.loads(text, object_pairs_hook=lambda items: _object(items, twice))
    except RecursionError:
        raise BadRowError(Kind.NOT_JSON, _TOO_DEEP) from None
    except ValueError as err:
        raise BadRowError(Kind.NOT_JSON, f"not JSON: {_told(err)}") from None
    checked = _checked(value, twice, 1)
    if isinstance(checked, Fault):
        raise BadRowError(checked.kind, checked.text)
    return dict(checked.row)


def _checked(value: object, twice: list[str], line: int) -> Record | Fault:
    if not isinstance(value, dict):
        return Fault(line, Kind.NOT_AN_OBJECT, f"{name_of(value)} where an object is wanted")
    if twice:
        return Fault(line, Kind.DUPLICATE_KEY, f"key {twice[0]!r} is there twice: wanted once")
    return Record(line, value)


def _object(items: list[tuple[str, Any]], twice: list[str]) -> dict[str, Any]:
    row = dict(items)
    if len(row) != len(items):
        names = [name for name, _ in items]
        twice.append(next(name for name in names if names.count(name) > 1))
    return row


def _skip(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    return place if found is None else found.end()


def _told(err: ValueError) -> str:
    # The file's own line goes before the message; the decoder counts lines within what it was given.
    return f"{err.msg} at column {err.colno}" if isinstance(err, json.JSONDecodeError) else str(err)
