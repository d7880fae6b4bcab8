"""One rank's own verdict: what the daemon said last, aged to now, with doubt settled by the operator's policy.

Pure: stamps arrive as arguments. It never answers "unknown": `OnUnknown` turns that into WARN, HOLD or STOP before a
row is voted.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from clockgate import rule
from clockgate.v1 import clock_pb2, gate_pb2

from clockgate_trainer.gate.model import Limits, SaveVerdict, StepVerdict

NS_PER_S = 1_000_000_000
_INT64_MAX = 2**63 - 1
_USABLE = (clock_pb2.CLOCK_STATE_SYNCHRONIZED, clock_pb2.CLOCK_STATE_HOLDOVER)
_STATES = frozenset(clock_pb2.ClockState.values())
_STEPS = frozenset(StepVerdict)
_SAVES = frozenset(SaveVerdict)
# Reason codes stay below this, so that a set of them fits one int64.
_REASON_CODES = 62


class OnUnknown(Enum):
    """What a rank votes when it cannot tell how good its clock is."""

    WARN = "warn"
    HOLD = "hold"
    STOP = "stop"


_DOUBT = {OnUnknown.WARN: StepVerdict.WARN, OnUnknown.HOLD: StepVerdict.HOLD, OnUnknown.STOP: StepVerdict.STOP}


@dataclass(frozen=True)
class Evidence:
    """The newest thing a daemon said, and when it arrived.

    `received_boot_ns` is our CLOCK_BOOTTIME; `round_trip_ns` is how long the question took, an upper limit of what the
    reading aged on its way. `same_boot` tells whether the reading's boot id is ours. `answer` is the daemon's own
    verdict on this reading, None when the reading came unasked.
    """

    reading: clock_pb2.Reading
    received_boot_ns: int
    round_trip_ns: int
    same_boot: bool
    answer: gate_pb2.CheckResponse | None = None


@dataclass(frozen=True)
class LocalVerdict:
    """What one rank says before the vote; absent values are None.

    `reasons` has bit c set for ReasonCode c; `detail` says the same to a person.
    """

    step: StepVerdict
    save: SaveVerdict
    reasons: int
    relative_bound_ns: int | None
    utc_bound_ns: int | None
    reference_hash: int | None
    epoch: int | None
    detail: str


@dataclass(frozen=True)
class _Claim:
    """One step and save verdict with the numbers of clockgate.v1, from the rule or from the daemon."""

    step: int
    save: int
    reasons: tuple[clock_pb2.Reason, ...]


def judge_local(
    evidence: Evidence | None, *, silent: bool, now_boot_ns: int, limits: Limits, on_unknown: OnUnknown
) -> LocalVerdict:
    """Verdict of this rank at `now_boot_ns` (our CLOCK_BOOTTIME). Never raises, whatever the daemon sent.

    `silent` says that the daemon failed to answer since the evidence arrived: the reading is aged and the reason
    DAEMON_UNREACHABLE is added. Past its void-after, and without any evidence, `on_unknown` decides. The result is
    never laxer than the daemon's own answer about the same reading.
    """
    if evidence is None:
        text = "no clock daemon has answered yet; start clockgated or name its socket with --clock_daemon"
        return _doubt(clock_pb2.REASON_CODE_DAEMON_NEVER_REACHED, text, on_unknown)
    nonsense = _nonsense(evidence.reading)
    if nonsense is not None:
        text = f"the clock daemon's answer makes no sense: {nonsense}"
        return _doubt(clock_pb2.REASON_CODE_DAEMON_UNREACHABLE, text, on_unknown)
    age = age_ns(evidence, now_boot_ns)
    claims = _claims(evidence, limits, evidence.reading.as_of_boot_ns + age)
    if silent:
        text = f"the clock daemon does not answer; its last reading is {age / NS_PER_S:.1f} s old"
        silence = clock_pb2.Reason(code=clock_pb2.REASON_CODE_DAEMON_UNREACHABLE, detail=text)
        claims = (_Claim(claims[0].step, claims[0].save, (silence,)), *claims)
    return _strictest(claims, evidence.reading, evidence.reading.as_of_boot_ns + age, on_unknown)


def age_ns(evidence: Evidence, now_boot_ns: int) -> int:
    """Age of the reading at `now_boot_ns`, ns, never too small.

    Under another boot id the two CLOCK_BOOTTIMEs do not compare: the age at send, the whole round trip and the time
    since receipt are added up. Under our own, the plain difference counts unless it is shorter than the time since
    send (a time namespace shifts CLOCK_BOOTTIME under one boot id).
    """
    since_send_ns = max(evidence.reading.age_ns, 0) + max(now_boot_ns - evidence.received_boot_ns, 0)
    if evidence.same_boot:
        return max(now_boot_ns - evidence.reading.as_of_boot_ns, since_send_ns)
    return since_send_ns + evidence.round_trip_ns


def reference_hash(identity: str) -> int:
    """The reference's identity as a non-negative int64: the first 8 bytes of its SHA-256 without the sign bit."""
    return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8], "big") & _INT64_MAX


def _claims(evidence: Evidence, limits: Limits, daemon_now_boot_ns: int) -> tuple[_Claim, ...]:
    wire_limits = gate_pb2.Limits(warn_ns=limits.warn_ns, hold_ns=limits.hold_ns)
    judged = rule.judge(evidence.reading, wire_limits, daemon_now_boot_ns)
    by_rule = _Claim(int(judged.step), int(judged.save), judged.reasons)
    answer = evidence.answer
    if answer is None:
        return (by_rule,)
    return (by_rule, _Claim(int(answer.step_verdict), int(answer.save_verdict), tuple(answer.reasons)))


def _strictest(
    claims: tuple[_Claim, ...], reading: clock_pb2.Reading, daemon_now_boot_ns: int, on_unknown: OnUnknown
) -> LocalVerdict:
    """The maximum of the claims; of the reading only what has not expired and may be used in its state."""
    valid = daemon_now_boot_ns <= reading.void_after_boot_ns
    usable = valid and reading.state in _USABLE
    named = valid and reading.reference.HasField("identity")
    causes = [reason for claim in claims for reason in claim.reasons] + list(reading.reasons)
    return LocalVerdict(
        step=max(_step(claim.step, on_unknown) for claim in claims),
        save=max(_save(claim.save) for claim in claims),
        reasons=_bits(int(cause.code) for cause in causes),
        relative_bound_ns=_clamped(rule.relative_bound_at(reading, daemon_now_boot_ns)) if usable else None,
        utc_bound_ns=_clamped(rule.utc_bound_at(reading, daemon_now_boot_ns)) if usable else None,
        reference_hash=reference_hash(reading.reference.identity) if named else None,
        epoch=reading.epoch & _INT64_MAX if valid else None,
        detail="; ".join(dict.fromkeys(cause.detail for cause in causes if cause.detail)),
    )


def _doubt(code: "clock_pb2.ReasonCode.ValueType", detail: str, on_unknown: OnUnknown) -> LocalVerdict:
    return LocalVerdict(
        step=_DOUBT[on_unknown],
        save=SaveVerdict.SAVE_UNTIMED,
        reasons=_bits((int(code),)),
        relative_bound_ns=None,
        utc_bound_ns=None,
        reference_hash=None,
        epoch=None,
        detail=detail,
    )


def _nonsense(reading: clock_pb2.Reading) -> str | None:
    """What is wrong with a reading that no daemon of this protocol sends; None when nothing is."""
    if not reading.boot_id:
        return "the reading names no boot"
    if reading.state not in _STATES:
        return f"state {int(reading.state)} has no meaning in this version"
    if reading.void_after_boot_ns < reading.as_of_boot_ns:
        return "the reading expired before it was made"
    amounts = {
        "relative_bound_ns": reading.relative_bound_ns,
        "utc_bound_ns": reading.utc_bound_ns,
        "growth_ppb": reading.growth_ppb,
    }
    for name, value in amounts.items():
        if value < 0:
            return f"{name} is {value}, wanted 0 or more"
    return None


def _step(value: int, on_unknown: OnUnknown) -> StepVerdict:
    """Our verdict for a number of clockgate.v1; UNKNOWN, and a number without a meaning, are doubt."""
    return StepVerdict(value) if value in _STEPS else _DOUBT[on_unknown]


def _save(value: int) -> SaveVerdict:
    return SaveVerdict(value) if value in _SAVES else SaveVerdict.SAVE_UNTIMED


def _bits(codes: Iterable[int]) -> int:
    """Set of reason codes as an int64; codes that do not fit (none of this protocol) are left out."""
    bits = 0
    for code in codes:
        if 0 < code < _REASON_CODES:
            bits |= 1 << code
    return bits


def _clamped(value_ns: int | None) -> int | None:
    return None if value_ns is None else min(value_ns, _INT64_MAX)
