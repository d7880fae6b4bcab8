"""What the stamps of a vote prove about clocks. Pure.

A row cannot leave after the vote that it belongs to is complete. Where the sender's stamp is later than the receiver's
by more than both clocks may be off, one of the two is outside its bound. Silence proves nothing: a clock that is
behind, or a row that left early, shows nothing to this receiver.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from clockgate.v1 import clock_pb2

from clockgate_trainer.gate.model import ABSENT, Accusation, Limits, Row
from clockgate_trainer.gate.policy import NS_PER_S, LocalVerdict

# While a row is under way both bounds grow, and a clock may be slewed: 500 ppm is the fastest that a kernel slews.
_GROWTH_PPB = 2 * 500_000
# Around a leap second CLOCK_REALTIME repeats or skips one by design; a pending one is inserted before a daemon says so.
_LEAP = 1 << clock_pb2.REASON_CODE_LEAP_PENDING | 1 << clock_pb2.REASON_CODE_LEAP_IN_PROGRESS


@dataclass(frozen=True)
class Receipt:
    """When a vote's last row arrived at this rank.

    `received_wall_ns` is CLOCK_REALTIME, taken with the other two on CLOCK_MONOTONIC. `local` is what the rank's daemon
    says of its clock at some moment after that.
    """

    started_mono_ns: int
    received_mono_ns: int
    received_wall_ns: int
    local: LocalVerdict


def audit(rows: Sequence[Row], own: int, receipt: Receipt, limits: Limits) -> Accusation | None:
    """What rank `own` holds against another rank after a vote; None where nothing is proven.

    Only clocks with usable bounds against one reference, or against UTC, are compared: one that is free-running,
    disrupted, unknown or expired has none. Nothing is held against anybody when this rank's own clock was set while it
    voted, or its epoch rose, or near a leap second.
    """
    mine = rows[own]
    grown_ns = _GROWTH_PPB * max(receipt.received_mono_ns - receipt.started_mono_ns, 0) // NS_PER_S
    if _own_clock_broke(mine, receipt, grown_ns) or (mine.reasons | receipt.local.reasons) & _LEAP:
        return None
    differences = {}
    compared = 0
    for rank, row in enumerate(rows):
        bounds_ns = _both_bounds(mine, receipt.local, row)
        if rank == own or bounds_ns is None or row.reasons & _LEAP:
            continue
        compared += 1
        ahead_ns = row.sent_wall_ns - receipt.received_wall_ns
        if ahead_ns > bounds_ns + grown_ns:
            differences[rank] = ahead_ns
    if not differences:
        return None
    worst = max(differences, key=lambda rank: (differences[rank], -rank))
    return Accusation(
        rank=worst,
        over_hold=differences[worst] > limits.hold_ns,
        by_most=compared > 1 and 2 * len(differences) > len(rows) - 1,
    )


def _own_clock_broke(mine: Row, receipt: Receipt, grown_ns: int) -> bool:
    """Whether CLOCK_REALTIME of this rank went otherwise than CLOCK_MONOTONIC during the vote, or its epoch rose.

    The row was stamped just before the vote started, so the wall clock may have gone further, never less far.
    """
    went_ns = receipt.received_wall_ns - mine.sent_wall_ns
    should_ns = receipt.received_mono_ns - receipt.started_mono_ns
    epoch = ABSENT if receipt.local.epoch is None else receipt.local.epoch
    return went_ns < should_ns - grown_ns or epoch != mine.epoch


def _both_bounds(mine: Row, local: LocalVerdict, other: Row) -> int | None:
    """Sum of both clocks' bounds, ns; None when they do not compare. Of this rank's two bounds, before and after the
    vote, the larger one counts.
    """
    one_reference = ABSENT != mine.reference_hash == other.reference_hash == local.reference_hash
    if one_reference and ABSENT not in (mine.relative_bound_ns, other.relative_bound_ns):
        after_ns = local.relative_bound_ns
        return None if after_ns is None else max(mine.relative_bound_ns, after_ns) + other.relative_bound_ns
    if ABSENT not in (mine.utc_bound_ns, other.utc_bound_ns):
        after_ns = local.utc_bound_ns
        return None if after_ns is None else max(mine.utc_bound_ns, after_ns) + other.utc_bound_ns
    return None
