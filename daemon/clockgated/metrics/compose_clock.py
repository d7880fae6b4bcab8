"""Numbers of the clock and of the daemon, from a snapshot. Pure."""

from collections.abc import Iterable

from clockgated.beats import LIMITS_NS, Histogram
from clockgated.clock.model import ClockState, Reading, ReasonCode, SourceKind, Traceability
from clockgated.metrics import families_clock as families
from clockgated.metrics.family import Buckets, Family, Numbers
from clockgated.metrics.snapshot import Snapshot
from clockgated.units import NS_PER_S

_PPB = 1_000_000_000
_USABLE = (ClockState.SYNCHRONIZED, ClockState.HOLDOVER)


def clock_numbers(seen: Snapshot) -> Iterable[Numbers]:
    """Everything in families_clock."""
    yield families.BUILD_INFO.each([((seen.version,), 1)])
    yield families.BOOT_INFO.each([((seen.reading.boot_id,), 1)])
    yield from _reading(seen.reading, seen.now_boot_ns)
    beat = seen.beat
    yield families.CYCLES.each([(("published",), beat.published), (("failed",), beat.failed)])
    yield _histogram(families.CYCLE_LATENESS, beat.lateness)
    yield _histogram(families.CYCLE_DURATION, beat.duration)
    yield families.CPU.one(seen.cpu_ns / NS_PER_S)
    yield families.DAEMON_RUNNING.each(((one.name,), one.running) for one in seen.children)
    yield families.DAEMON_EXITS.each(((one.name,), one.exits) for one in seen.children)
    yield families.DAEMON_CRASH_LOOP.each(((one.name,), one.crash_loop) for one in seen.children)
    yield families.LEASES.one(seen.leases)
    yield families.LEASES_MOST.one(seen.leases_limit)
    yield families.STREAMS.each(((name,), one.open) for name, one in seen.streams.items())
    yield families.STREAMS_REFUSED.each(((name,), one.refused) for name, one in seen.streams.items())
    yield families.TUNING_APPLIED.one(seen.tuning_applied)
    yield families.TUNING_DRIFT.one(seen.tuning_drifted)


def _reading(reading: Reading, now_boot_ns: int) -> Iterable[Numbers]:
    age_ns = max(0, now_boot_ns - reading.as_of_boot_ns)
    grown_ns = -(-age_ns * reading.growth_ppb // _PPB)
    bound_ns, utc_ns, reference = reading.relative_bound_ns, reading.utc_bound_ns, reading.reference
    is_usable = now_boot_ns <= reading.void_after_boot_ns and reading.state in _USABLE and bound_ns is not None
    yield families.STATE.states(map(_word, ClockState), [_word(reading.state)])
    yield families.USABLE.one(is_usable)
    yield families.REASON.states(map(_word, ReasonCode), [_word(reason.code) for reason in reading.reasons])
    yield families.SOURCE.states(map(_word, SourceKind), [_word(reading.source_kind)])
    yield families.RELATIVE_BOUND.one(None if bound_ns is None else (bound_ns + grown_ns) / NS_PER_S)
    yield families.UTC_BOUND.one(None if utc_ns is None else (utc_ns + grown_ns) / NS_PER_S)
    yield families.GROWTH.one(reading.growth_ppb / _PPB)
    yield families.OFFSET.one(None if reading.offset_ns is None else reading.offset_ns / NS_PER_S)
    yield families.ESTIMATE.one(None if reading.estimate_95_ns is None else reading.estimate_95_ns / NS_PER_S)
    yield families.AGE.one(age_ns / NS_PER_S)
    yield families.VOID_IN.one((reading.void_after_boot_ns - now_boot_ns) / NS_PER_S)
    yield families.EPOCH.one(reading.epoch)
    yield families.STRATUM.one(reference.stratum)
    yield families.TRACEABLE.states(map(_word, Traceability), [_word(reference.traceability)])
    yield families.REFERENCE_INFO.each([((reference.identity or "", reference.source_name, reference.ref_id), 1)])


def _histogram(family: Family, seen: Histogram) -> Numbers:
    upto, count = [], 0
    for limit_ns, here in zip(LIMITS_NS, seen.counts, strict=False):
        count += here
        upto.append((limit_ns / NS_PER_S, count))
    return Numbers(family, buckets=Buckets(tuple(upto), sum(seen.counts), seen.sum_ns / NS_PER_S))


def _word(member: ClockState | ReasonCode | SourceKind | Traceability) -> str:
    return member.name.lower()
