import pytest
from clockgated import config
from clockgated.clock.ptp_bound import Stamps, Steering
from clockgated.clock.state import StatePolicy
from clockgated.leases import LeaseLimits
from clockgated.manage.planned import PlannedPtp
from clockgated.steering.policies import bound_policy, lease_limits, ptp_policy, state_policy

SETTINGS = config.parse(
    b"""
    [clock]
    max_bound_ms = 0.5
    reading_ttl_s = 7
    max_drift_ppm = 20
    holdover_horizon_s = 3
    sync_cycles = 4
    [chrony]
    maxclockerror_ppm = 1.5
    [leases]
    max_leases = 5
    max_per_job = 4
    idle_s = 1.5
    refuse_broken_s = 0
    [ptp]
    max_frequency_ppm = 200
    """,
    "x.toml",
)


def test_settings_reach_the_policies_in_their_units() -> None:
    assert state_policy(SETTINGS) == StatePolicy(
        max_bound_ns=500_000,
        sync_cycles=4,
        holdover_horizon_ns=3_000_000_000,
        reading_ttl_ns=7_000_000_000,
        growth_ppb=20_000,
    )


def test_settings_reach_the_leases_and_both_have_the_same_defaults() -> None:
    wanted = LeaseLimits(max_leases=5, max_per_job=4, idle_ns=1_500_000_000, refuse_broken_ns=0)
    assert lease_limits(SETTINGS) == wanted
    assert lease_limits(config.Config()) == LeaseLimits()


def test_a_chronyd_of_ours_is_known_to_assume_what_it_was_told() -> None:
    observed, own = bound_policy(SETTINGS), bound_policy(SETTINGS, 20.0)
    assert (observed.max_drift_ppb, observed.assumed_clockerror_ppb) == (20_000, 1_500)
    assert (own.max_drift_ppb, own.assumed_clockerror_ppb) == (20_000, 20_000)
    assert bound_policy(SETTINGS, 0.0).assumed_clockerror_ppb == 0


def planned(hardware: bool, refid: str | None, runs_free: bool = False) -> PlannedPtp:
    clock = "/dev/ptp0" if hardware else None
    return PlannedPtp("eth0", "/s", 7, hardware, clock, refid, steers=refid is None, runs_free=runs_free)


@pytest.mark.parametrize(
    ("hardware", "refid", "right", "steering", "demanded"),
    [
        (False, None, True, Steering.PTP, True),
        (True, None, True, Steering.PTP, True),
        (False, None, False, Steering.NOBODY, True),
        (False, "PTP0", True, Steering.CHRONYD, False),
        # There phc2sys feeds chronyd, and ptp4l steers the hardware clock.
        (True, "PTP0", False, Steering.CHRONYD, True),
    ],
)
def test_who_steers_and_whether_a_port_must_be_slave(
    hardware: bool, refid: str | None, right: bool, steering: Steering, demanded: bool
) -> None:
    policy = ptp_policy(SETTINGS, planned(hardware, refid), has_clock_right=right)
    assert (policy.steering, policy.is_slave_demanded, policy.domain) == (steering, demanded, 7)
    assert policy.stamps is (Stamps.HARDWARE if hardware else Stamps.SOFTWARE)
    assert (policy.max_drift_ppb, policy.max_frequency_ppb) == (20_000, 200_000)


def test_a_port_that_only_measures_is_not_asked_to_be_slave() -> None:
    policy = ptp_policy(SETTINGS, planned(hardware=False, refid=None, runs_free=True), has_clock_right=False)
    assert (policy.steering, policy.is_slave_demanded) == (Steering.NOBODY, False)
