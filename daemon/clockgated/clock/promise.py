"""The bound that was last vouched for, how it ages, and what new evidence makes of it."""

from dataclasses import dataclass, replace

from clockgated.clock.bound import grown_ns
from clockgated.clock.model import Evidence, Reference


@dataclass(frozen=True)
class Promise:
    """The last bound that every gate stood behind, at `as_of_boot_ns`.

    `measured_*` is what that measurement claimed; `bound_ns` may be wider (see `promised`). The gates were last true at
    `good_boot_ns`, which is earlier where the bound was taken up again after a restart: the horizon counts from there.
    The bound grows at `growth_ppb`; one that is handed out grows at `steering_ppb` as well, because its holder does not
    see what a servo does to the clock meanwhile. `is_provisional`: there has been no evidence yet that is not.
    """

    bound_ns: int
    utc_bound_ns: int | None
    measured_bound_ns: int
    measured_utc_bound_ns: int | None
    growth_ppb: int
    as_of_boot_ns: int
    good_boot_ns: int
    reference: Reference
    assumptions: tuple[str, ...]
    update_id: str | None
    steering_ppb: int = 0
    is_provisional: bool = False

    def bound_at_ns(self, boot_ns: int) -> int:
        """Relative bound, ns, at `boot_ns`; never less than at `as_of_boot_ns`."""
        return grown_ns(self.bound_ns, self.growth_ppb, boot_ns - self.as_of_boot_ns)

    def utc_bound_at_ns(self, boot_ns: int) -> int | None:
        """UTC bound, ns, at `boot_ns`; None when there is none."""
        if self.utc_bound_ns is None:
            return None
        return grown_ns(self.utc_bound_ns, self.growth_ppb, boot_ns - self.as_of_boot_ns)


def promised(
    previous: Promise | None,
    evidence: Evidence,
    measured_ns: int,
    *,
    least_growth_ppb: int,
    slew_ppb: int | None,
) -> Promise:
    """What this evidence, whose bound is `measured_ns`, allows to be promised; `slew_ppb` as in `held`.

    In the cycle that sees an update of the reference, the older measurement, aged, is kept when it is wider: the new
    one may be of a false server that the next cycle drops. One cycle and not one poll of the source: the wider bound
    would otherwise be in force always. Provisional evidence does not replace it at all: the first Sync after an outage
    may have been delayed by just what the clock is off.
    """
    measured_utc_ns = evidence.utc_bound_ns
    has_better = previous is not None and not previous.is_provisional
    if previous is not None and has_better and evidence.is_provisional:
        older = held(previous, evidence.as_of_boot_ns, slew_ppb)
        measured_ns = max(measured_ns, older.measured_bound_ns)
        measured_utc_ns = _wider_ns(measured_utc_ns, older.measured_utc_bound_ns)
    bound_ns, utc_bound_ns = measured_ns, measured_utc_ns
    if previous is not None and is_update(previous.update_id, evidence.update_id):
        age_ns = evidence.as_of_boot_ns - previous.as_of_boot_ns
        bound_ns = max(bound_ns, grown_ns(previous.measured_bound_ns, previous.growth_ppb, age_ns))
        if previous.measured_utc_bound_ns is not None:
            aged_utc_ns = grown_ns(previous.measured_utc_bound_ns, previous.growth_ppb, age_ns)
            utc_bound_ns = _wider_ns(utc_bound_ns, aged_utc_ns)
    return Promise(
        bound_ns=bound_ns,
        utc_bound_ns=utc_bound_ns,
        measured_bound_ns=measured_ns,
        measured_utc_bound_ns=measured_utc_ns,
        growth_ppb=max(least_growth_ppb, evidence.growth_ppb or 0),
        steering_ppb=evidence.steering_ppb,
        is_provisional=evidence.is_provisional and not has_better,
        as_of_boot_ns=evidence.as_of_boot_ns,
        good_boot_ns=evidence.as_of_boot_ns,
        reference=evidence.reference,
        assumptions=evidence.assumptions,
        update_id=evidence.update_id,
    )


def _wider_ns(measured_ns: int | None, older_ns: int | None) -> int | None:
    """The wider one; None when nothing was measured, and what was when there is nothing older."""
    return measured_ns if measured_ns is None or older_ns is None else max(measured_ns, older_ns)


def held(promise: Promise, now_boot_ns: int, slew_ppb: int | None) -> Promise:
    """What is still promised at `now_boot_ns` without a measurement.

    `slew_ppb` is how fast the clock was moved against the bare oscillator lately; None: nobody knows. A servo that lost
    its reference leaves in force what it corrected last, which may have been the answer to one Sync that was delayed:
    it is not known to be what the oscillator needs. So the clock may have run off by its drift and by all that it was
    moved.
    """
    growth_ppb = promise.growth_ppb + (promise.steering_ppb if slew_ppb is None else slew_ppb)
    age_ns = now_boot_ns - promise.as_of_boot_ns

    def aged_ns(bound_ns: int) -> int:
        return grown_ns(bound_ns, growth_ppb, age_ns)

    utc_bound_ns, measured_utc_bound_ns = promise.utc_bound_ns, promise.measured_utc_bound_ns
    return replace(
        promise,
        bound_ns=aged_ns(promise.bound_ns),
        utc_bound_ns=None if utc_bound_ns is None else aged_ns(utc_bound_ns),
        measured_bound_ns=aged_ns(promise.measured_bound_ns),
        measured_utc_bound_ns=None if measured_utc_bound_ns is None else aged_ns(measured_utc_bound_ns),
        as_of_boot_ns=now_boot_ns,
    )


def is_update(before: str | None, after: str | None) -> bool:
    """Whether the source updated between two measurements, by their `update_id`."""
    return before is not None and after is not None and before != after
