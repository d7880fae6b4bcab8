"""The journal of epochs as a person and as a script want it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from clockgate.v1 import clock_pb2

from clockgated import units
from clockgated.ctl.status import printable

_SHOWN_BOOT_ID = 8


def as_json(epochs: Sequence[clock_pb2.Epoch]) -> dict[str, Any]:
    """The epochs under stable keys with units, the newest last; None for what is absent."""
    return {
        "epochs": [
            {
                "epoch": one.epoch,
                "boot_id": one.boot_id,
                "began_boot_ns": one.began_boot_ns,
                "began_wall_ns": one.began_wall_ns,
                "cause": one.cause,
                "detail": one.detail,
                "jump_ns": one.jump_ns if one.HasField("jump_ns") else None,
            }
            for one in epochs
        ]
    }


def render(epochs: Sequence[clock_pb2.Epoch]) -> str:
    """One line for each, the newest last: number, boot, when by the wall clock (UTC), why."""
    if not epochs:
        return "no epoch is recorded"
    return "\n".join(
        f"{one.epoch:>8}  boot {printable(one.boot_id[:_SHOWN_BOOT_ID])}  {_utc(one.began_wall_ns)}  "
        f"{printable(one.cause)}: {printable(one.detail)}"
        for one in epochs
    )


def _utc(wall_ns: int) -> str:
    try:
        return datetime.fromtimestamp(wall_ns // units.NS_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        # A journal that somebody edited may hold any number.
        return f"{wall_ns} ns"
