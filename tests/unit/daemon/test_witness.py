import pytest
from clockgated.clock.model import ReasonCode
from clockgated.clock.ptp_report import SystemOffset
from clockgated.clock.witness import (
    GrandmasterTrail,
    KernelLook,
    KernelState,
    RateLook,
    foreign_adjuster,
    grandmaster_changed,
    leap_second,
    measures_disagree,
    phc_frozen,
    rate_disagrees,
    servo_pinned,
    steering_denied,
    tai_slip,
    two_grandmasters,
)
from hypothesis import given, settings
from hypothesis import strategies as st

MS, SECOND = 1_000_000, 1_000_000_000
A, B, C = "02aa00.fffe.000001", "02aa00.fffe.000002", "02aa00.fffe.000003"
PLL, FLL, INS, DEL, UNSYNC = 0x1, 0x8, 0x10, 0x20, 0x40


def kernel(
    freq_ppb: float = 0.0, tick_us: int = 10_000, status: int = 0, state: KernelState = KernelState.OK
) -> KernelLook:
    return KernelLook(0, freq_ppb, tick_us, status, state)


def is_seen(reason: object) -> bool:
    return reason is not None


@pytest.mark.parametrize(
    ("progress_ns", "elapsed_ns", "seen"),
    [
        (0, SECOND, True),
        (-SECOND, SECOND, True),
        (SECOND // 2 - 1, SECOND, True),
        (SECOND // 2, SECOND, False),
        (SECOND, SECOND, False),
        # Stepped by its servo.
        (38 * SECOND, SECOND, False),
        # Too short to tell a stalled reader from a stalled clock.
        (0, MS - 1, False),
    ],
)
def test_frozen_hardware_clock(progress_ns: int, elapsed_ns: int, seen: bool) -> None:
    reason = phc_frozen("/dev/ptp0", progress_ns, elapsed_ns)
    assert is_seen(reason) is seen
    assert reason is None or reason.code is ReasonCode.PHC_FROZEN


@pytest.mark.parametrize(
    ("freq_ppb", "seen"),
    [(0, False), (474_999, False), (475_000, True), (-475_000, True), (100_000_000, True), (1_000_000, True)],
)
def test_pinned_servo(freq_ppb: int, seen: bool) -> None:
    reason = servo_pinned("phc2sys", freq_ppb, 500_000)
    assert is_seen(reason) is seen
    assert reason is None or (reason.code is ReasonCode.SERVO_PINNED and "ppm" in reason.detail)


@pytest.mark.parametrize(
    ("denied_ns_ago", "may_set_clock", "seen"),
    [
        (None, None, False),
        (None, True, False),
        (None, False, True),
        (SECOND, None, True),
        (SECOND, True, True),
        (SECOND, False, True),
        (30 * SECOND, True, True),
        (31 * SECOND, True, False),
        (31 * SECOND, None, False),
        (31 * SECOND, False, True),
    ],
)
def test_denied_steering(denied_ns_ago: int | None, may_set_clock: bool | None, seen: bool) -> None:
    reason = steering_denied("ptp4l", denied_ns_ago, may_set_clock, 30 * SECOND)
    assert is_seen(reason) is seen
    assert reason is None or (reason.code is ReasonCode.STEERING_DENIED and "CAP_SYS_TIME" in reason.detail)


@pytest.mark.parametrize(
    ("before", "after", "claimed_ppb", "seen"),
    [
        # Nothing changed.
        (kernel(1000.0), kernel(1000.0), (), False),
        (kernel(1000.0), kernel(1000.0), (5000.0,), False),
        # Our servo said so; what it writes to the kernel has the opposite sign.
        (kernel(1000.0), kernel(-1500.0), (1500.0,), False),
        (kernel(1000.0), kernel(-1500.0), (1400.0, 1500.0, 1600.0), False),
        (kernel(1000.0), kernel(1500.0), (1500.0,), True),
        (kernel(1000.0), kernel(-9000.0), (1500.0,), True),
        # Frequency and tick are one correction in two variables.
        (kernel(0.0), kernel(-1500.0, tick_us=9_999), (101_500.0,), False),
        (kernel(0.0), kernel(0.0, tick_us=10_001), (0.0,), True),
        # A servo that prints nothing cannot be compared.
        (kernel(1000.0), kernel(-9000.0), (), False),
        # The kernel's own loop is ntpd's or timesyncd's way.
        (kernel(status=UNSYNC), kernel(status=UNSYNC | PLL), (), True),
        (kernel(), kernel(status=FLL), (0.0,), True),
        (kernel(status=PLL), kernel(status=PLL), (), False),
        (kernel(status=PLL), kernel(), (), False),
        (kernel(), kernel(status=INS), (), False),
    ],
)
def test_foreign_adjuster(before: KernelLook, after: KernelLook, claimed_ppb: tuple[float, ...], seen: bool) -> None:
    reason = foreign_adjuster(before, after, claimed_ppb, 2.0)
    assert is_seen(reason) is seen
    assert reason is None or reason.code is ReasonCode.FOREIGN_ADJUSTER


@pytest.mark.parametrize(
    ("gained_ns", "elapsed_ns", "corrections_ppb", "seen"),
    [
        (0, SECOND, (0.0, 0.0), False),
        (10_000, SECOND, (10_000.0, 10_000.0), False),
        (-10_000, SECOND, (-10_000.0, -10_000.0), False),
        (10_000, SECOND, (-200_000.0, -200_000.0), True),
        # 100 ppm are allowed here, and 3 and 2 us of reading.
        (105_000, SECOND, (0.0, 0.0), False),
        (105_001, SECOND, (0.0, 0.0), True),
        (-105_001, SECOND, (0.0, 0.0), True),
        # The servo changed its mind: either rate, or one in between.
        (300_000, SECOND, (0.0, 300_000.0), False),
        (300_000, SECOND, (300_000.0, 0.0), False),
        (150_000, SECOND, (300_000.0, 0.0), False),
        (-105_001, SECOND, (300_000.0, 0.0), True),
        (405_001, SECOND, (300_000.0, 0.0), True),
        # phc2sys on a frozen hardware clock: 10 %, and the kernel says so, so that this witness is satisfied.
        (100 * MS, SECOND, (100_000_000.0, 100_000_000.0), False),
        (5 * MS, 10 * SECOND, (0.0, 0.0), True),
        # Too short to tell a rate.
        (5 * MS, MS - 1, (0.0, 0.0), False),
    ],
)
def test_rate_against_the_raw_clock(
    gained_ns: int, elapsed_ns: int, corrections_ppb: tuple[float, float], seen: bool
) -> None:
    before, after = RateLook(7, 1_000, 3_000), RateLook(7 + elapsed_ns, 1_000 + elapsed_ns + gained_ns, 2_000)
    reason = rate_disagrees(before, after, corrections_ppb, 100_000.0)
    assert is_seen(reason) is seen
    assert reason is None or (reason.code is ReasonCode.WITNESS_DISAGREES and "MONOTONIC_RAW" in reason.detail)


@pytest.mark.parametrize(("status", "loops"), [(0, False), (PLL, True), (FLL, True), (UNSYNC | INS, False)])
def test_the_kernels_own_loop_is_known_by_its_status(status: int, loops: bool) -> None:
    assert kernel(status=status).is_looping is loops


@pytest.mark.parametrize(
    ("ours", "claimed", "seen"),
    [
        (SystemOffset(0, 500), SystemOffset(0, 500), False),
        (SystemOffset(1_000, 500), SystemOffset(0, 500), False),
        (SystemOffset(1_001, 500), SystemOffset(0, 500), True),
        (SystemOffset(-1_001, 500), SystemOffset(0, 500), True),
        # A second at 50 ppm explains 50 us.
        (SystemOffset(51_000, 500), SystemOffset(0, 500, SECOND), False),
        (SystemOffset(51_001, 500), SystemOffset(0, 500, SECOND), True),
        # The servo's single spike is no contradiction: ours counts.
        (SystemOffset(10, 500), SystemOffset(-10_500_000, 450), False),
        # It says a few ns while the clock is ms away.
        (SystemOffset(-10_500_000, 500), SystemOffset(12, 450), True),
    ],
)
def test_two_measures_of_the_system_clock(ours: SystemOffset, claimed: SystemOffset, seen: bool) -> None:
    reason = measures_disagree(ours, claimed, 50_000)
    assert is_seen(reason) is seen
    assert reason is None or reason.code is ReasonCode.WITNESS_DISAGREES


@pytest.mark.parametrize(
    ("offset_ns", "tai_offset_s", "seen"),
    [
        (37 * SECOND, 37, True),
        (-37 * SECOND, 37, True),
        (37 * SECOND + 400 * MS, 37, True),
        (37 * SECOND + 600 * MS, 37, False),
        (36 * SECOND, 37, False),
        (0, 37, False),
        (0, 0, False),
        (37 * SECOND, 0, False),
    ],
)
def test_tai_slip(offset_ns: int, tai_offset_s: int, seen: bool) -> None:
    reason = tai_slip("CLOCK_REALTIME", offset_ns, tai_offset_s)
    assert is_seen(reason) is seen
    assert reason is None or reason.code is ReasonCode.TAI_SLIP


@pytest.mark.parametrize("state", list(KernelState))
@pytest.mark.parametrize("status", [0, INS, DEL, UNSYNC])
@pytest.mark.parametrize("announced", [-1, 0, 1])
def test_leap_second(state: KernelState, status: int, announced: int) -> None:
    reason = leap_second(kernel(status=status, state=state), announced)
    if state is KernelState.IN_PROGRESS:
        assert reason is not None
        assert reason.code is ReasonCode.LEAP_IN_PROGRESS
    elif announced or status in (INS, DEL):
        assert reason is not None
        assert reason.code is ReasonCode.LEAP_PENDING
        assert ("deleted" if announced < 0 or (not announced and status == DEL) else "inserted") in reason.detail
    else:
        assert reason is None


def test_without_the_kernels_look_the_announcement_counts() -> None:
    assert leap_second(None, 0) is None
    assert is_seen(leap_second(None, 1))


def trail(*identities: str, memory_ns: int = 300 * SECOND, every_ns: int = SECOND) -> GrandmasterTrail:
    result = GrandmasterTrail()
    for cycle, identity in enumerate(identities):
        result = result.followed(identity, cycle * every_ns, memory_ns)
    return result


def test_a_trail_notes_changes_only_and_forgets_old_ones() -> None:
    assert trail(A, A, A).changes == ((0, A),)
    assert trail(A, B, B).changes == ((0, A), (SECOND, B))
    assert trail(A, B, B, B, memory_ns=2 * SECOND).changes == ((SECOND, B),)
    # The grandmaster in force is never forgotten.
    assert trail(A, A, A, A, memory_ns=SECOND).changes == ((0, A),)


@pytest.mark.parametrize(
    ("identities", "syncs", "seen"),
    [((A,), 0, False), ((A, B), 0, True), ((A, B), 7, True), ((A, B), 8, False), ((), 0, False)],
)
def test_grandmaster_change_counts_until_enough_syncs(identities: tuple[str, ...], syncs: int, seen: bool) -> None:
    reason = grandmaster_changed(trail(*identities), syncs, 8)
    assert is_seen(reason) is seen
    assert reason is None or (reason.code is ReasonCode.GRANDMASTER_CHANGED and A in reason.detail)


@pytest.mark.parametrize(
    ("identities", "seen"),
    [
        ((A,), False),
        ((A, B), False),
        ((A, B, C), False),
        ((A, B, C, "02aa00.fffe.000004"), False),
        # A failover and back.
        ((A, B, A), False),
        ((A, B, A, B), True),
        ((A, B, C, A), True),
    ],
)
def test_two_grandmasters_alternate(identities: tuple[str, ...], seen: bool) -> None:
    reason = two_grandmasters(trail(*identities))
    assert is_seen(reason) is seen
    assert reason is None or reason.code is ReasonCode.TWO_GRANDMASTERS


@settings(deadline=None)
@given(st.lists(st.sampled_from([A, B, C]), min_size=1, max_size=30), st.integers(0, 20))
def test_a_trail_ends_with_the_grandmaster_in_force(identities: list[str], memory_s: int) -> None:
    result = trail(*identities, memory_ns=memory_s * SECOND)
    assert result.changes[-1][1] == identities[-1]
    assert list(result.changes) == sorted(result.changes)
