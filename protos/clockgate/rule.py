"""The one rule that turns a reading into a node's verdict.

The daemon applies it in Gate.Check; a client applies the same rule to the last reading it has when no answer comes.
Pure: time arrives as an argument, in CLOCK_BOOTTIME of the boot that the reading names.
"""

from dataclasses import dataclass

from clockgate.v1 import clock_pb2, gate_pb2

_USABLE = (clock_pb2.CLOCK_STATE_SYNCHRONIZED, clock_pb2.CLOCK_STATE_HOLDOVER)
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class Judgement:
    """A node's two verdicts and the causes that the limits add to the reading's own reasons."""

    step: "gate_pb2.StepVerdict.ValueType"
    save: "gate_pb2.SaveVerdict.ValueType"
    reasons: tuple[clock_pb2.Reason, ...]


def grown_ns(bound_ns: int, growth_ppb: int, age_ns: int) -> int:
    """`bound_ns` after `age_ns` more nanoseconds at `growth_ppb`, rounded up; a negative age counts as none."""
    return bound_ns + -(-growth_ppb * max(age_ns, 0) // _NS_PER_S)


def relative_bound_at(reading: clock_pb2.Reading, now_boot_ns: int) -> int | None:
    """Relative bound, ns, at `now_boot_ns`; None when the reading has none."""
    if not reading.HasField("relative_bound_ns"):
        return None
    return grown_ns(reading.relative_bound_ns, reading.growth_ppb, now_boot_ns - reading.as_of_boot_ns)


def utc_bound_at(reading: clock_pb2.Reading, now_boot_ns: int) -> int | None:
    """UTC bound, ns, at `now_boot_ns`; None when the reading has none."""
    if not reading.HasField("utc_bound_ns"):
        return None
    return grown_ns(reading.utc_bound_ns, reading.growth_ppb, now_boot_ns - reading.as_of_boot_ns)


def judge(reading: clock_pb2.Reading, limits: gate_pb2.Limits, now_boot_ns: int) -> Judgement:
    """Judge one node's reading at `now_boot_ns`, which must be of the boot that the reading names.

    Half of each limit is this node's share, since two nodes can disagree by the sum of their bounds. A reading past
    its void-after, and the state UNKNOWN, give STEP_VERDICT_UNKNOWN: the asker's own policy decides. A state without
    a usable bound gives HOLD. So does a state that a newer daemon knows and this version does not.
    """
    if now_boot_ns > reading.void_after_boot_ns:
        late_s = (now_boot_ns - reading.void_after_boot_ns) / _NS_PER_S
        return _unknown(clock_pb2.REASON_CODE_READING_EXPIRED, f"the reading expired {late_s:.1f} s ago")
    if reading.state in (clock_pb2.CLOCK_STATE_UNSPECIFIED, clock_pb2.CLOCK_STATE_UNKNOWN):
        return _unknown(clock_pb2.REASON_CODE_NO_USABLE_BOUND, "the state is UNKNOWN")
    bound_ns = relative_bound_at(reading, now_boot_ns)
    if reading.state not in _USABLE or bound_ns is None:
        detail = f"state {_state_name(reading.state)} has no usable bound"
        return Judgement(
            gate_pb2.STEP_VERDICT_HOLD,
            gate_pb2.SAVE_VERDICT_SAVE_UNTIMED,
            (clock_pb2.Reason(code=clock_pb2.REASON_CODE_NO_USABLE_BOUND, detail=detail),),
        )
    return _by_limit(bound_ns, limits)


def _state_name(state: int) -> str:
    known = clock_pb2.ClockState.DESCRIPTOR.values_by_number.get(state)
    return known.name.removeprefix("CLOCK_STATE_") if known else str(state)


def _by_limit(bound_ns: int, limits: gate_pb2.Limits) -> Judgement:
    ranked = (
        (limits.hold_ns, "hold", gate_pb2.STEP_VERDICT_HOLD, clock_pb2.REASON_CODE_HOLD_LIMIT),
        (limits.warn_ns, "warn", gate_pb2.STEP_VERDICT_WARN, clock_pb2.REASON_CODE_WARN_LIMIT),
    )
    for limit_ns, name, step, code in ranked:
        if 2 * bound_ns > limit_ns:
            detail = f"bound ±{bound_ns / 1e6:.6g} ms is above half of the {name} limit of {limit_ns / 1e6:.6g} ms"
            return Judgement(step, gate_pb2.SAVE_VERDICT_SAVE, (clock_pb2.Reason(code=code, detail=detail),))
    return Judgement(gate_pb2.STEP_VERDICT_PROCEED, gate_pb2.SAVE_VERDICT_SAVE, ())


def _unknown(code: "clock_pb2.ReasonCode.ValueType", detail: str) -> Judgement:
    reason = clock_pb2.Reason(code=code, detail=detail)
    return Judgement(gate_pb2.STEP_VERDICT_UNKNOWN, gate_pb2.SAVE_VERDICT_SAVE_UNTIMED, (reason,))
