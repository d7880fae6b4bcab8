"""A lint report as people and as scripts read it. Pure."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clockgate_trainer.lint.inspect import Report, Spread

MOST_SHOWN = 100
_BAR = 40


def lines(report: Report, *, guessed: bool, copy: Path | None) -> Iterator[str]:
    """The report as lines: findings first, each with file and line."""
    for fault in report.findings[:MOST_SHOWN]:
        yield fault.at(report.name)
    if len(report.findings) > MOST_SHOWN:
        yield f"{report.name}: and {len(report.findings) - MOST_SHOWN} more findings (--json lists all)"
    how = f"read as {report.format}"
    if guessed:
        how += f", guessed from its columns: train with --dataset_format {report.format}"
    yield f"{report.name}: {report.kept} of {report.rows} rows have no finding ({how})"
    if report.spread is not None:
        yield from _histogram(report.spread)
    for note in report.notes:
        yield f"  note: {note}"
    if copy is not None:
        yield f"  {_copied(report, copy)}"


def as_json(report: Report, *, guessed: bool, copy: Path | None) -> dict[str, Any]:
    """The report as plain data."""
    spread = report.spread
    return {
        "name": report.name,
        "format": report.format,
        "format_guessed": guessed,
        "rows": report.rows,
        "kept": report.kept,
        "findings": [
            {"line": fault.line, "kind": fault.kind.value, "text": fault.text, "refuses": fault.refuses}
            for fault in report.findings
        ],
        "lengths": None
        if spread is None
        else {
            "unit": spread.unit,
            "median": spread.median,
            "p90": spread.most,
            "p99": spread.nearly_all,
            "longest": spread.longest,
            "histogram": [list(bucket) for bucket in spread.buckets],
        },
        "notes": list(report.notes),
        "copy": str(copy) if copy is not None and report.kept else None,
    }


def _histogram(spread: Spread) -> Iterator[str]:
    yield (
        f"  {spread.unit} of a row: median {spread.median}, 90 % up to {spread.most}, 99 % up to {spread.nearly_all}, "
        f"longest {spread.longest}"
    )
    largest = max(count for _, count in spread.buckets)
    for limit, count in spread.buckets:
        yield f"  up to {limit:>7,} {'#' * max(1, count * _BAR // largest):<{_BAR}} {count:,}"


def _copied(report: Report, copy: Path) -> str:
    if not report.kept:
        return "no clean copy is written: no row is left"
    left_out = ", ".join(f"{kind} {count}" for kind, count in report.dropped.items()) or "nothing"
    return f"wrote {copy}: {report.kept} rows; left out {report.rows - report.kept} ({left_out})"
