"""The last reading on disk. What it is worth after a restart is judged in `resume`."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clockgated.clock.breach import Breach
from clockgated.clock.continuity import Look
from clockgated.clock.model import ClockState, Reading, Reason, ReasonCode, Reference, SourceKind, Traceability
from clockgated.durable import replace_file
from clockgated.memory.fields import (
    read_int,
    read_list,
    read_object,
    read_optional_int,
    read_optional_text,
    read_text,
)
from clockgated.memory.resume import Discarded, SavedReading, Steering

_FORMAT = 1
_MAX_FILE_BYTES = 262_144


def encode(saved: SavedReading) -> bytes:
    """The file's content."""
    return json.dumps({"format": _FORMAT, **asdict(saved)}).encode() + b"\n"


def parse(data: bytes) -> SavedReading | Discarded:
    """The saved reading in a file's content, or what is wrong with it. Never raises."""
    try:
        fields = read_object(json.loads(data))
        if fields.get("format") != _FORMAT:
            raise ValueError(f"format is {fields.get('format')!r:.80}, wanted {_FORMAT}")
        return SavedReading(
            reading=_read_reading(read_object(fields.get("reading"))),
            look=_read_look(read_object(fields.get("look"))),
            steering=_read_steering(fields),
            good_boot_ns=read_optional_int(fields, "good_boot_ns"),
            update_id=read_optional_text(fields, "update_id"),
            breach=_read_breach(fields),
            steering_ppb=read_optional_int(fields, "steering_ppb") or 0,
        )
    except (ValueError, RecursionError) as error:
        return Discarded(f"not a saved reading: {error}")


def _read_look(fields: Mapping[str, Any]) -> Look:
    return Look(
        boot_ns=read_int(fields, "boot_ns"),
        mono_ns=read_int(fields, "mono_ns"),
        wall_ns=read_int(fields, "wall_ns"),
        steering_id=read_optional_text(fields, "steering_id"),
        error_ns=read_optional_int(fields, "error_ns") or 0,
    )


def _read_steering(fields: Mapping[str, Any]) -> Steering | None:
    if fields.get("steering") is None:
        return None
    steering = read_object(fields["steering"])
    return Steering(read_int(steering, "freq_ppb"), read_int(steering, "tick_us"))


def _read_breach(fields: Mapping[str, Any]) -> Breach | None:
    if fields.get("breach") is None:
        return None
    breach = read_object(fields["breach"])
    return Breach(
        _read_reasons(breach),
        read_optional_text(breach, "update_id"),
        read_optional_int(breach, "over_boot_ns"),
        read_optional_int(breach, "younger_ns") or 0,
        read_optional_text(breach, "settled_update_id"),
    )


def _read_reading(fields: Mapping[str, Any]) -> Reading:
    bounds = read_optional_int(fields, "relative_bound_ns"), read_optional_int(fields, "utc_bound_ns")
    growth_ppb = read_int(fields, "growth_ppb")
    if growth_ppb < 0 or any(bound is not None and bound < 0 for bound in bounds):
        raise ValueError(f"bounds {bounds} and growth {growth_ppb}: wanted none below 0")
    return Reading(
        state=ClockState(read_int(fields, "state")),
        relative_bound_ns=bounds[0],
        utc_bound_ns=bounds[1],
        growth_ppb=growth_ppb,
        epoch=read_int(fields, "epoch"),
        reference=_read_reference(read_object(fields.get("reference"))),
        as_of_boot_ns=read_int(fields, "as_of_boot_ns"),
        void_after_boot_ns=read_int(fields, "void_after_boot_ns"),
        boot_id=read_text(fields, "boot_id"),
        reasons=_read_reasons(fields),
        assumptions=tuple(read_text({"assumption": one}, "assumption") for one in read_list(fields, "assumptions")),
        source_kind=SourceKind(read_int(fields, "source_kind")),
        offset_ns=read_optional_int(fields, "offset_ns"),
        sequence=read_int(fields, "sequence"),
        estimate_95_ns=read_optional_int(fields, "estimate_95_ns"),
    )


def _read_reference(fields: Mapping[str, Any]) -> Reference:
    return Reference(
        identity=read_optional_text(fields, "identity"),
        source_name=read_text(fields, "source_name"),
        stratum=read_optional_int(fields, "stratum"),
        ref_id=read_text(fields, "ref_id"),
        traceability=Traceability(read_int(fields, "traceability")),
    )


def _read_reasons(fields: Mapping[str, Any]) -> tuple[Reason, ...]:
    found = (read_object(one) for one in read_list(fields, "reasons"))
    return tuple(Reason(ReasonCode(read_int(one, "code")), read_text(one, "detail")) for one in found)


class LastReadingFile:
    """The file that holds it. It belongs on a file system that a reboot empties, such as /run."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def save(self, saved: SavedReading) -> None:
        """Replace it; raises OSError. Call before the reading is published, or an epoch could be given out twice."""
        # Not synced, although it is written every cycle: it must outlive this process and not the machine, since
        # another boot discards it. Replacing by name is atomic for every process that looks, killed or not.
        replace_file(self._path, encode(saved), sync=False)

    def discard(self) -> None:
        """Remove it; raises OSError. No reading at all is better than an old one that was not replaced."""
        self._path.unlink(missing_ok=True)

    def load(self) -> SavedReading | Discarded:
        """Read it. Never raises; a file that is not there is a reason like any other."""
        try:
            with self._path.open("rb") as file:
                data = file.read(_MAX_FILE_BYTES + 1)
        except OSError as error:
            return Discarded(f"{self._path}: {error.strerror}")
        if len(data) > _MAX_FILE_BYTES:
            return Discarded(f"{self._path} has more than {_MAX_FILE_BYTES} bytes")
        return parse(data)
