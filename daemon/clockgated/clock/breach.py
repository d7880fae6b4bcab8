"""A break of continuity that the source may not have looked across yet."""

from dataclasses import dataclass, replace

from clockgated.clock.continuity import Continuity
from clockgated.clock.model import Evidence, Reason, Silence
from clockgated.clock.promise import is_update
from clockgated.units import NS_PER_S, PPB_PER_PPM

# How wrong chronyd's own clock may run by which it tells ages: ten times the skew up to which it is believed.
_AGE_ERROR_PPB = 1_000 * PPB_PER_PPM
# chronyd slews by a twelfth, at the most; what other daemons do stays far below.
_FASTEST_SLEW_PPB = NS_PER_S // 10


@dataclass(frozen=True)
class Breach:
    """A break of continuity that the source has not yet been seen to look across.

    A source keeps telling what it knew before the break until it measures again, up to a poll later. `update_id` is
    the update that was seen first after the break (None: none yet); only a later one counts. By `over_boot_ns` the
    break was over (None: the source knows of it): no sample from before counts, of a source that dates its samples.
    Such a sample may look younger by `younger_ns` than the CLOCK_BOOTTIME since the break: the wall clock that it was
    dated by was set back, or both were slewed. `settled_update_id` is the update that was seen first beside samples
    which were all younger; where it was made of several sources, some of these may have been older at that time.
    """

    reasons: tuple[Reason, ...]
    update_id: str | None = None
    over_boot_ns: int | None = None
    younger_ns: int = 0
    settled_update_id: str | None = None


def breach_of(
    previous: Breach | None, measurement: Evidence | Silence, continuity: Continuity, now_boot_ns: int
) -> Breach:
    """The break that just happened, after another one that the source may not have looked across either."""
    over_boot_ns, younger_ns = (previous.over_boot_ns, previous.younger_ns) if previous else (None, 0)
    if not continuity.is_known_to_source:
        over_boot_ns, younger_ns = now_boot_ns, younger_ns + continuity.set_back_ns
    return Breach(
        continuity.breaks,
        measurement.update_id if isinstance(measurement, Evidence) else None,
        over_boot_ns,
        younger_ns,
    )


def aged(breach: Breach, elapsed_ns: int, slew_ppb: int | None) -> Breach:
    """The breach `elapsed_ns` later, in which the clock was slewed by `slew_ppb`; None: nobody knows how fast."""
    error_ppb = _AGE_ERROR_PPB + (_FASTEST_SLEW_PPB if slew_ppb is None else slew_ppb)
    return replace(breach, younger_ns=breach.younger_ns - (-error_ppb * max(elapsed_ns, 0) // NS_PER_S))


def forgotten(breach: Breach) -> Breach:
    """The breach once the source has dropped all its samples: whatever update comes next is from after it."""
    return replace(breach, over_boot_ns=None, younger_ns=0)


def settled(breach: Breach, evidence: Evidence) -> Breach | None:
    """The breach after one more measurement with open gates; None once the source has looked across it."""
    # A source that does not name its updates is believed at once: there is nothing to wait for.
    is_updated = evidence.update_id is None or is_update(breach.update_id, evidence.update_id)
    if not is_updated or not _rests_on_later_samples(evidence, breach):
        return breach
    is_whole = breach.over_boot_ns is None or not evidence.is_combined
    if is_whole or is_update(breach.settled_update_id, evidence.update_id):
        return None
    return replace(breach, settled_update_id=breach.settled_update_id or evidence.update_id)


def _rests_on_later_samples(evidence: Evidence, breach: Breach) -> bool:
    """Whether every sample behind `evidence` is from after the break, as far as the source dates its samples."""
    if breach.over_boot_ns is None or evidence.oldest_sample_ns is None:
        return True
    return evidence.oldest_sample_ns + breach.younger_ns < evidence.as_of_boot_ns - breach.over_boot_ns
