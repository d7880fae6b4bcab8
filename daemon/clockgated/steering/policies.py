"""From the configuration to what bounds, states and leases go by, in the units of their rooms. Pure."""

import math

from clockgated import units
from clockgated.clock.bound import BoundPolicy
from clockgated.clock.ptp_bound import PtpPolicy, Stamps, Steering
from clockgated.clock.state import StatePolicy
from clockgated.config import Config
from clockgated.leases import LeaseLimits
from clockgated.manage.planned import PlannedPtp


def state_policy(settings: Config) -> StatePolicy:
    """The limits of the states."""
    clock = settings.clock
    return StatePolicy(
        max_bound_ns=round(clock.max_bound_ms * units.NS_PER_MS),
        sync_cycles=clock.sync_cycles,
        holdover_horizon_ns=round(clock.holdover_horizon_s * units.NS_PER_S),
        reading_ttl_ns=round(clock.reading_ttl_s * units.NS_PER_S),
        growth_ppb=units.ppb_from_ppm(clock.max_drift_ppm),
    )


def lease_limits(settings: Config) -> LeaseLimits:
    """The limits of the no-step leases."""
    leases = settings.leases
    return LeaseLimits(
        max_leases=leases.max_leases,
        max_per_job=leases.max_per_job,
        idle_ns=round(leases.idle_s * units.NS_PER_S),
        refuse_broken_ns=round(leases.refuse_broken_s * units.NS_PER_S),
    )


def bound_policy(settings: Config, max_clock_error_ppm: float | None = None) -> BoundPolicy:
    """What the bound assumes of a chronyd that is told to assume `max_clock_error_ppm`; None: one not of ours."""
    covered_ppm = settings.chrony.maxclockerror_ppm if max_clock_error_ppm is None else max_clock_error_ppm
    return BoundPolicy(
        max_drift_ppb=units.ppb_from_ppm(settings.clock.max_drift_ppm),
        # Rounded down: what chronyd covers already is taken off what we add.
        assumed_clockerror_ppb=math.floor(covered_ppm * units.PPB_PER_PPM),
    )


def ptp_policy(settings: Config, ptp: PlannedPtp, *, has_clock_right: bool) -> PtpPolicy:
    """What the bound of one ptp4l assumes, and what its gates demand."""
    if ptp.refid is not None:
        steering = Steering.CHRONYD
    else:
        steering = Steering.PTP if has_clock_right and ptp.steers else Steering.NOBODY
    return PtpPolicy(
        domain=ptp.domain,
        stamps=Stamps.HARDWARE if ptp.hardware else Stamps.SOFTWARE,
        steering=steering,
        # A servo that only feeds chronyd or only measures leaves its port UNCALIBRATED for ever; with hardware stamps
        # it is phc2sys that does so, and ptp4l steers the hardware clock.
        is_slave_demanded=ptp.hardware or (ptp.refid is None and not ptp.runs_free),
        max_drift_ppb=units.ppb_from_ppm(settings.clock.max_drift_ppm),
        max_frequency_ppb=units.ppb_from_ppm(settings.ptp.max_frequency_ppm),
    )
