"""Reads a run's events: where it is, and a table of every decision of the gate."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

_HEADER = ("start", "step", "kind", "step verdict", "save verdict", "cluster bound", "vote", "held", "reasons")


def _events(path: Path) -> Iterator[Mapping[str, object]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            # The last line may be half written while the job runs.
            if line.endswith("\n"):
                yield json.loads(line)


def last_step(path: Path) -> int:
    """The newest step that a gate decision names; 0 when there is none yet."""
    steps = [event["step"] for event in _events(path) if event["event"] == "gate"]
    return max((step for step in steps if isinstance(step, int)), default=0)


def rank_pid(run: Path, rank: int) -> int:
    """Pid that a rank logged at its last start."""
    name = "events.jsonl" if rank == 0 else f"events-rank{rank}.jsonl"
    pids = [event["pid"] for event in _events(run / name) if event["event"] == "start"]
    pid = pids[-1]
    if not isinstance(pid, int):
        raise TypeError(f"{name}: pid {pid!r} is not an integer")
    return pid


def held_s(path: Path) -> float:
    """Seconds that the ranks waited for the gate, over all starts."""
    held = [event.get("held_ns") for event in _events(path) if event["event"] == "gate"]
    return sum(value for value in held if isinstance(value, int)) / 1e9


def table(path: Path) -> str:
    """Every decision of the gate as text, one line each, in the order in which they were made."""
    rows: list[tuple[str, ...]] = [_HEADER]
    for event in _events(path):
        if event["event"] == "gate":
            rows.append(_row(event))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _row(event: Mapping[str, object]) -> tuple[str, ...]:
    reasons = event.get("reasons")
    return (
        str(event.get("attempt", "")),
        str(event["step"]),
        str(event["kind"]),
        str(event["step_verdict"]),
        str(event["save_verdict"]),
        _ms(event.get("cluster_bound_ns"), "±"),
        _ms(event.get("vote_ns"), ""),
        _ms(event.get("held_ns"), "") if event.get("held_ns") else "",
        ", ".join(map(str, reasons)) if isinstance(reasons, list) else "",
    )


def _ms(value_ns: object, sign: str) -> str:
    return f"{sign}{value_ns / 1e6:.3f} ms" if isinstance(value_ns, int | float) else "unknown"
