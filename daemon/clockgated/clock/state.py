"""The state machine: what may be promised about the clock, cycle by cycle.

| state | good | wide | other |
| --- | --- | --- | --- |
| UNKNOWN | ACQUIRING | UNKNOWN | UNKNOWN |
| ACQUIRING | SYNCHRONIZED after N | ACQUIRING | ACQUIRING |
| SYNCHRONIZED | SYNCHRONIZED | FREE_RUNNING | HOLDOVER |
| HOLDOVER | SYNCHRONIZED | FREE_RUNNING | HOLDOVER, FREE_RUNNING past bound or horizon |
| FREE_RUNNING | SYNCHRONIZED after N | FREE_RUNNING | FREE_RUNNING |
| DISRUPTED | ACQUIRING once updated | DISRUPTED | DISRUPTED |

good: every gate true and the bound within the limit; wide: every gate true, bound above it; other: a closed gate, a
leap second in progress, silence. A break of continuity leads from every state to DISRUPTED in a new epoch, except from
UNKNOWN: nothing was promised there, so only the epoch rises (a source that is never trusted would otherwise pin its
node to DISRUPTED, which holds training, where UNKNOWN leaves the choice to `--on_unknown`).
"""

from dataclasses import dataclass, replace

from clockgated.clock.breach import Breach, aged, breach_of, forgotten, settled
from clockgated.clock.continuity import Continuity
from clockgated.clock.model import (
    ClockState,
    Detail,
    Evidence,
    Reading,
    Reason,
    ReasonCode,
    Reference,
    Silence,
    SourceKind,
)
from clockgated.clock.promise import Promise, held, promised
from clockgated.units import NS_PER_MS, NS_PER_S

_BOUND_SHOWN = (ClockState.SYNCHRONIZED, ClockState.HOLDOVER, ClockState.FREE_RUNNING)


@dataclass(frozen=True)
class StatePolicy:
    """Limits of the states. `growth_ppb` is the least rate at which a bound grows with age."""

    max_bound_ns: int = 50_000_000
    sync_cycles: int = 3
    holdover_horizon_ns: int = 1000 * NS_PER_S
    reading_ttl_ns: int = 5 * NS_PER_S
    growth_ppb: int = 50_000


@dataclass(frozen=True)
class Track:
    """The memory of the machine: everything that the next cycle depends on."""

    state: ClockState
    epoch: int
    sequence: int
    good_cycles: int
    as_of_boot_ns: int
    kind: SourceKind
    reference: Reference
    offset_ns: int | None
    assumptions: tuple[str, ...]
    reasons: tuple[Reason, ...]
    promise: Promise | None = None
    breach: Breach | None = None
    estimate_95_ns: int | None = None
    details: tuple[Detail, ...] = ()


def start(kind: SourceKind, now_boot_ns: int, epoch: int = 1, sequence: int = 0) -> Track:
    """The machine before its first measurement: UNKNOWN. Epoch and sequence go on from an earlier reading, if any."""
    return Track(
        state=ClockState.UNKNOWN,
        epoch=epoch,
        sequence=sequence,
        good_cycles=0,
        as_of_boot_ns=now_boot_ns,
        kind=kind,
        reference=Reference(),
        offset_ns=None,
        assumptions=(),
        reasons=(Reason(ReasonCode.STARTING, "the first measurement is not done yet"),),
    )


def advance(
    track: Track,
    measurement: Evidence | Silence,
    continuity: Continuity,
    now_boot_ns: int,
    policy: StatePolicy,
    *,
    slew_ppb: int | None = 0,
) -> Track:
    """One cycle. `now_boot_ns` is read after the measurement: ages are judged at it, so they come out too long.

    `slew_ppb` is how fast the clock was moved against the bare oscillator since the last cycle; None: nobody knows.
    """
    if track.breach is not None:
        elapsed_ns = measurement.as_of_boot_ns - track.as_of_boot_ns
        track = replace(track, breach=aged(track.breach, elapsed_ns, slew_ppb))
    track = _noted(track, measurement)
    if continuity.is_broken:
        return _broken(track, measurement, continuity, now_boot_ns)
    track = _breach_watched(track, measurement)
    claimed_ns = _claimed_bound_ns(measurement)
    if track.breach is None and isinstance(measurement, Evidence) and claimed_ns is not None:
        promise = promised(
            track.promise, measurement, claimed_ns, least_growth_ppb=policy.growth_ppb, slew_ppb=slew_ppb
        )
        if promise.bound_at_ns(now_boot_ns) <= policy.max_bound_ns:
            return _on_good(replace(track, promise=promise), policy)
        return _on_wide(track, promise, now_boot_ns, policy)
    if track.promise is not None and track.promise.steering_ppb:
        track = replace(track, promise=held(track.promise, now_boot_ns, slew_ppb))
    return _on_other(track, now_boot_ns, policy)


def has_bound(track: Track) -> bool:
    """Whether the state shows a bound, be it usable or for information."""
    return track.state in _BOUND_SHOWN and track.promise is not None


def reading_of(track: Track, boot_id: str, policy: StatePolicy) -> Reading:
    """The published value. Its stamp is that of the current cycle also while the source is lost, with the bound grown
    to it: a live daemon's reading does not expire because its source is silent, only because the daemon is.
    """
    promise = track.promise if has_bound(track) else None
    return Reading(
        state=track.state,
        relative_bound_ns=promise.bound_at_ns(track.as_of_boot_ns) if promise else None,
        utc_bound_ns=promise.utc_bound_at_ns(track.as_of_boot_ns) if promise else None,
        growth_ppb=promise.growth_ppb + promise.steering_ppb if promise else policy.growth_ppb,
        epoch=track.epoch,
        # A bound is worth nothing beside another reference than the one that it was measured against.
        reference=promise.reference if promise else track.reference,
        as_of_boot_ns=track.as_of_boot_ns,
        void_after_boot_ns=track.as_of_boot_ns + policy.reading_ttl_ns,
        boot_id=boot_id,
        reasons=track.reasons,
        assumptions=promise.assumptions if promise else track.assumptions,
        source_kind=track.kind,
        offset_ns=track.offset_ns,
        sequence=track.sequence,
        estimate_95_ns=track.estimate_95_ns,
        details=track.details,
    )


def _noted(track: Track, measurement: Evidence | Silence) -> Track:
    """Take over what a measurement says about itself, whatever it is worth."""
    if isinstance(measurement, Silence):
        return replace(
            track,
            sequence=track.sequence + 1,
            as_of_boot_ns=measurement.as_of_boot_ns,
            kind=measurement.kind,
            reference=Reference(),
            offset_ns=None,
            assumptions=(),
            reasons=(measurement.reason,),
            estimate_95_ns=None,
            details=(),
        )
    return replace(
        track,
        sequence=track.sequence + 1,
        as_of_boot_ns=measurement.as_of_boot_ns,
        kind=measurement.kind,
        reference=measurement.reference,
        offset_ns=measurement.offset_ns,
        assumptions=measurement.assumptions,
        reasons=measurement.faults + measurement.remarks,
        estimate_95_ns=measurement.estimate_95_ns,
        details=measurement.details,
    )


def must_forget(before: Track, after: Track) -> bool:
    """Whether a break has just begun across which the source would go on computing with what it measured earlier."""
    return after.epoch != before.epoch and after.breach is not None and after.breach.over_boot_ns is not None


def has_forgotten(track: Track) -> Track:
    """The machine once its source has dropped every sample from before the break."""
    return track if track.breach is None else replace(track, breach=forgotten(track.breach))


def _broken(track: Track, measurement: Evidence | Silence, continuity: Continuity, now_boot_ns: int) -> Track:
    is_unknown = track.state is ClockState.UNKNOWN
    return replace(
        track,
        state=ClockState.UNKNOWN if is_unknown else ClockState.DISRUPTED,
        epoch=track.epoch + 1,
        good_cycles=0,
        promise=None,
        breach=breach_of(track.breach, measurement, continuity, now_boot_ns),
        reasons=_joined(continuity.breaks, track.reasons),
    )


def _breach_watched(track: Track, measurement: Evidence | Silence) -> Track:
    """Close the breach once the source has measured after it; until then its reasons stay on every reading."""
    breach = track.breach
    if breach is None:
        return track
    if isinstance(measurement, Evidence) and _claimed_bound_ns(measurement) is not None:
        left = settled(breach, measurement)
        if left is None:
            return replace(track, breach=None)
        breach = left
    if breach.update_id is None:
        breach = replace(breach, update_id=_update_id(measurement))
    return replace(track, breach=breach, reasons=_joined(breach.reasons, track.reasons))


def _joined(breaks: tuple[Reason, ...], others: tuple[Reason, ...]) -> tuple[Reason, ...]:
    """Both, where the cause of a break still shows as a fault: once."""
    codes = {reason.code for reason in breaks}
    return breaks + tuple(reason for reason in others if reason.code not in codes)


def _update_id(measurement: Evidence | Silence) -> str | None:
    return measurement.update_id if isinstance(measurement, Evidence) else None


def _claimed_bound_ns(measurement: Evidence | Silence) -> int | None:
    """The bound of a measurement whose gates are all true; None of any other."""
    if isinstance(measurement, Silence) or measurement.faults or measurement.leap_in_progress:
        return None
    return measurement.bound_ns


def _on_good(track: Track, policy: StatePolicy) -> Track:
    good_cycles = track.good_cycles + 1
    track = replace(track, good_cycles=good_cycles)
    # From HOLDOVER one good cycle will do: the settling time guards against believing a source that just appeared,
    # whereas here the old bound still holds, in the same epoch, and `promised` keeps it for this cycle when wider.
    was_usable = track.state in (ClockState.SYNCHRONIZED, ClockState.HOLDOVER)
    # DISRUPTED leaves to ACQUIRING only, also when one good cycle is enough for the rest.
    is_settled = good_cycles >= policy.sync_cycles and track.state is not ClockState.DISRUPTED
    if was_usable or (is_settled and track.state is not ClockState.UNKNOWN):
        return replace(track, state=ClockState.SYNCHRONIZED)
    detail = f"{good_cycles} of {policy.sync_cycles} good cycles in a row"
    settling = Reason(ReasonCode.SETTLING, detail)
    state = ClockState.FREE_RUNNING if track.state is ClockState.FREE_RUNNING else ClockState.ACQUIRING
    return replace(track, state=state, reasons=(*track.reasons, settling))


def _on_wide(track: Track, promise: Promise, now_boot_ns: int, policy: StatePolicy) -> Track:
    reasons = (*track.reasons, _over_limit(promise.bound_at_ns(now_boot_ns), policy))
    track = replace(track, good_cycles=0, reasons=reasons)
    if track.state not in _BOUND_SHOWN:
        # A clock that was never within the limit is no better than one without a source.
        return track
    return replace(track, state=ClockState.FREE_RUNNING, promise=promise)


def _on_other(track: Track, now_boot_ns: int, policy: StatePolicy) -> Track:
    track = replace(track, good_cycles=0)
    if track.state not in _BOUND_SHOWN or track.promise is None:
        return track
    reasons: tuple[Reason, ...] = ()
    bound_ns = track.promise.bound_at_ns(now_boot_ns)
    if bound_ns > policy.max_bound_ns:
        reasons += (_over_limit(bound_ns, policy),)
    lost_ns = now_boot_ns - track.promise.good_boot_ns
    if lost_ns > policy.holdover_horizon_ns:
        detail = (
            f"the source has been lost for {lost_ns / NS_PER_S:.1f} s; "
            f"holdover ends after {policy.holdover_horizon_ns / NS_PER_S:g} s"
        )
        reasons += (Reason(ReasonCode.HOLDOVER_HORIZON, detail),)
    is_free = bool(reasons) or track.state is ClockState.FREE_RUNNING
    state = ClockState.FREE_RUNNING if is_free else ClockState.HOLDOVER
    return replace(track, state=state, reasons=track.reasons + reasons)


def _over_limit(bound_ns: int, policy: StatePolicy) -> Reason:
    detail = f"the bound is ±{bound_ns / NS_PER_MS:.6g} ms; the limit is ±{policy.max_bound_ns / NS_PER_MS:g} ms"
    return Reason(ReasonCode.BOUND_OVER_LIMIT, detail)
