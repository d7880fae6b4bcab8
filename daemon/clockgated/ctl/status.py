"""The status as a person and as a script want it: pure functions of one reading and the time."""

import math
from collections.abc import Sequence
from typing import Any

from clockgate.rule import relative_bound_at, utc_bound_at
from clockgate.v1 import clock_pb2

from clockgated import units

_USABLE = (clock_pb2.CLOCK_STATE_SYNCHRONIZED, clock_pb2.CLOCK_STATE_HOLDOVER)
_DIGITS = 4
_UNITS = ((units.NS_PER_S, "s"), (units.NS_PER_MS, "ms"), (units.NS_PER_US, "µs"), (1, "ns"))
_GREEN, _YELLOW, _RED, _PLAIN = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"


def is_usable(reading: clock_pb2.Reading, now_boot_ns: int) -> bool:
    """Whether the reading's bound may be used at `now_boot_ns`, CLOCK_BOOTTIME of the reading's boot."""
    is_current = now_boot_ns <= reading.void_after_boot_ns
    return is_current and reading.state in _USABLE and reading.HasField("relative_bound_ns")


def as_json(
    reading: clock_pb2.Reading, now_boot_ns: int, details: Sequence[clock_pb2.SourceDetail] = ()
) -> dict[str, Any]:
    """The reading under stable keys with units, None for what is absent. `*_now_ns` are grown to `now_boot_ns`.

    `details` are texts for people under names that may change.
    """
    reference = reading.reference
    return {
        "state": state_name(reading),
        "usable": is_usable(reading, now_boot_ns),
        "expired": now_boot_ns > reading.void_after_boot_ns,
        "relative_bound_ns": _present(reading, "relative_bound_ns"),
        "relative_bound_now_ns": relative_bound_at(reading, now_boot_ns),
        "utc_bound_ns": _present(reading, "utc_bound_ns"),
        "utc_bound_now_ns": utc_bound_at(reading, now_boot_ns),
        "growth_ppb": reading.growth_ppb,
        "offset_ns": _present(reading, "offset_ns"),
        "estimate_95_ns": _present(reading, "estimate_95_ns"),
        "epoch": reading.epoch,
        "source_kind": _source_kind(reading),
        "reference": {
            "identity": _present(reference, "identity"),
            "source_name": reference.source_name or None,
            "stratum": _present(reference, "stratum"),
            "ref_id": reference.ref_id or None,
            "traceable": _traceable(reading),
        },
        "as_of_boot_ns": reading.as_of_boot_ns,
        "void_after_boot_ns": reading.void_after_boot_ns,
        "age_ns": max(0, now_boot_ns - reading.as_of_boot_ns),
        "boot_id": reading.boot_id,
        "sequence": reading.sequence,
        "reasons": [{"code": reason_name(reason), "detail": reason.detail} for reason in reading.reasons],
        "assumptions": list(reading.assumptions),
        "time_daemon": {one.name: one.value for one in details},
    }


def render(
    reading: clock_pb2.Reading,
    now_boot_ns: int,
    details: Sequence[clock_pb2.SourceDetail] = (),
    *,
    in_colour: bool,
) -> str:
    """The reading as lines for a person, bounds grown to `now_boot_ns`, and below it what the time daemon says."""
    rows = [
        ("relative bound", _bound(relative_bound_at(reading, now_boot_ns), reading)),
        ("UTC bound", _bound(utc_bound_at(reading, now_boot_ns), reading)),
        ("offset", _offset(reading)),
        *_estimate(reading),
        ("source", _source_kind(reading)),
        ("reference", _reference(reading.reference)),
        ("traceable", _traceable(reading)),
        ("stratum", str(reading.reference.stratum) if reading.reference.HasField("stratum") else "none"),
        ("epoch", str(reading.epoch)),
        ("age", _age(reading, now_boot_ns)),
        *_listed("reason", [f"{reason_name(reason)}: {reason.detail}" for reason in reading.reasons]),
        *_listed("assumes", list(reading.assumptions)),
    ]
    lines = [_headline(reading, now_boot_ns, in_colour=in_colour)]
    lines += [f"  {name:<16}{printable(value)}" for name, value in rows]
    if details:
        widest = max(len(printable(one.name)) for one in details)
        lines.append("the time daemon says")
        lines += [f"  {printable(one.name):<{widest}}  {printable(one.value)}" for one in details]
    return "\n".join(lines)


def format_ns(size_ns: int) -> str:
    """A width in the largest unit that keeps it at 1 or more, cut to four digits and never rounded down."""
    factor, unit = next(((factor, unit) for factor, unit in _UNITS if size_ns >= factor), _UNITS[-1])
    whole_digits = len(str(size_ns // factor))
    # Integers up to here: a float would show 0.1 + 0.2 on an exact value.
    decimals = max(0, min(_DIGITS - whole_digits, round(math.log10(factor))))
    scaled = -(-size_ns * 10**decimals // factor)
    return (
        f"{scaled / 10**decimals:.{decimals}f}".rstrip("0").rstrip(".") + f" {unit}" if decimals else f"{scaled} {unit}"
    )


def _headline(reading: clock_pb2.Reading, now_boot_ns: int, *, in_colour: bool) -> str:
    is_expired = now_boot_ns > reading.void_after_boot_ns
    state = f"{state_name(reading)} (expired: the daemon stopped measuring)" if is_expired else state_name(reading)
    if not in_colour:
        return state
    is_best = reading.state == clock_pb2.CLOCK_STATE_SYNCHRONIZED
    colour = (_GREEN if is_best else _YELLOW) if is_usable(reading, now_boot_ns) else _RED
    return f"{colour}{state}{_PLAIN}"


def _bound(bound_ns: int | None, reading: clock_pb2.Reading) -> str:
    if bound_ns is None:
        return "unknown"
    growth = f"±{format_ns(bound_ns)}, growing {format_ns(reading.growth_ppb)} a second"
    return growth if reading.state in _USABLE else f"{growth} (for information: not usable in this state)"


def _offset(reading: clock_pb2.Reading) -> str:
    if not reading.HasField("offset_ns"):
        return "unknown"
    if reading.offset_ns == 0:
        return "0 ns"
    side = "ahead" if reading.offset_ns > 0 else "behind"
    return f"{format_ns(abs(reading.offset_ns))} {side} (estimate)"


def _estimate(reading: clock_pb2.Reading) -> list[tuple[str, str]]:
    """Left out where the source gives none: beside a bound, "unknown" would only puzzle."""
    if not reading.HasField("estimate_95_ns"):
        return []
    return [("95 % estimate", f"{format_ns(reading.estimate_95_ns)} (for people; the bound is the promise)")]


def _reference(reference: clock_pb2.Reference) -> str:
    identity = reference.identity if reference.HasField("identity") else ""
    ref_id = f"refid {reference.ref_id}" if reference.ref_id else ""
    return ", ".join(part for part in (reference.source_name, identity, ref_id) if part) or "none"


def _age(reading: clock_pb2.Reading, now_boot_ns: int) -> str:
    age_s = max(0, now_boot_ns - reading.as_of_boot_ns) / units.NS_PER_S
    left_s = (reading.void_after_boot_ns - now_boot_ns) / units.NS_PER_S
    return f"{age_s:.1f} s, " + (f"valid for {left_s:.1f} s more" if left_s >= 0 else f"expired {-left_s:.1f} s ago")


def _listed(name: str, values: list[str]) -> list[tuple[str, str]]:
    return [(name if index == 0 else "", value) for index, value in enumerate(values)]


def state_name(reading: clock_pb2.Reading) -> str:
    """The reading's state without the enum's prefix."""
    return _enum_name(clock_pb2.ClockState, reading.state, "CLOCK_STATE_")


def _source_kind(reading: clock_pb2.Reading) -> str:
    return _enum_name(clock_pb2.SourceKind, reading.source_kind, "SOURCE_KIND_").lower()


def _traceable(reading: clock_pb2.Reading) -> str:
    return _enum_name(clock_pb2.Traceability, reading.reference.traceability, "TRACEABILITY_").lower()


def reason_name(reason: clock_pb2.Reason) -> str:
    """The reason's code without the enum's prefix."""
    return _enum_name(clock_pb2.ReasonCode, reason.code, "REASON_CODE_")


def _enum_name(enum: Any, number: int, prefix: str) -> str:
    """Name of a value without the enum's prefix; its number when a newer daemon sent one that is not known here."""
    try:
        name: str = enum.Name(number)
    except ValueError:
        return str(number)
    return name.removeprefix(prefix)


def _present(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def printable(text: str) -> str:
    """`text` without control characters: names come from other machines, and end on somebody's terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
