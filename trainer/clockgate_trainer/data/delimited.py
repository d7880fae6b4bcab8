"""Rows of .csv and .tsv files, by their header line. Any bytes give rows or faults, never an error.

A quote that is opened and not closed swallows lines: the fault names the line on which that row begins.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from clockgate_trainer.data.record import Fault, Kind, Record

# The library's own limit, 128 KiB, is less than a long document.
_LONGEST_FIELD = 2**31 - 1


def delimited_rows(path: Path, delimiter: str) -> Iterator[Record | Fault]:
    """One row for each line after the header. Raises OSError."""
    csv.field_size_limit(_LONGEST_FIELD)
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
        yield from _rows(text, delimiter)


def _rows(text: TextIO, delimiter: str) -> Iterator[Record | Fault]:
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    header: list[str] | None = None
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as err:
            yield Fault(line, Kind.CSV_QUOTING, _quoting(err, line, reader.line_num))
            if header is None:
                return
            continue
        if not fields:
            continue
        if header is None:
            header = fields
            twice = next((name for name in header if header.count(name) > 1), None)
            if twice is not None:
                yield Fault(line, Kind.DUPLICATE_KEY, f"column {twice!r} is in the header twice: wanted once")
                return
        elif len(fields) != len(header):
            yield Fault(line, Kind.CSV_WIDTH, _width(fields, header, delimiter))
        else:
            yield Record(line, dict(zip(header, fields, strict=True)))


def _quoting(err: csv.Error, first: int, last: int) -> str:
    if "unexpected end" in str(err):
        return f"a quote is opened and never closed: all up to line {last} is one field; close it or double it"
    if "expected after" in str(err):
        return 'text follows a closing quote: write a quote inside a quoted field as ""'
    return f"not a row: {err}" + (f" (lines {first} to {last})" if last > first else "")


def _width(fields: Sequence[str], header: Sequence[str], delimiter: str) -> str:
    mark = "tab" if delimiter == "\t" else repr(delimiter)
    return (
        f"{_count(len(fields))} where the header has {len(header)}: quote a field that holds a {mark}, "
        "or add what is missing"
    )


def _count(number: int) -> str:
    return "1 field" if number == 1 else f"{number} fields"
