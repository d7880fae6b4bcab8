from dataclasses import replace
from typing import Any

import pytest
from clockgated.clock.continuity import Look
from clockgated.clock.model import Evidence, Reason, ReasonCode, Silence
from clockgated.clock.watch import HostLook, Watch, Watched, watched
from clockgated.clock.witness import KernelLook, KernelState, RateLook
from support.evidence import SECOND, evidence, silence

MS = 1_000_000
PLL, INS = 0x1, 0x10
WALL_NS = 1_800_000_000 * SECOND
C = ReasonCode


class Host:
    """A host whose clocks, kernel and rate a test moves; looked at once a second."""

    def __init__(self, *, own_steering: bool = False) -> None:
        self.own_steering = own_steering
        self.is_promised = False
        self.now_ns = 100 * SECOND
        self.set_ns = WALL_NS
        self.raw_ns = 7
        self.kernel: KernelLook | None = KernelLook(0, 0.0, 10_000, 0, KernelState.OK, 37)
        self.steering_id: str | None = None
        self.watch = Watch()

    def steer(self, **changes: Any) -> None:
        assert self.kernel is not None
        self.kernel = replace(self.kernel, **changes)

    def cycle(self, measurement: Evidence | Silence | None = None, *, gained_ppb: int = 0, jump_ns: int = 0) -> Watched:
        self.now_ns += SECOND
        self.set_ns += jump_ns
        # Of two clocks that drift apart it does not matter which one is said to be right.
        self.raw_ns += SECOND - gained_ppb
        clocks = Look(self.now_ns, self.now_ns, self.now_ns + self.set_ns, self.steering_id)
        look = HostLook(clocks, self.kernel, RateLook(self.raw_ns, self.now_ns, 0))
        seen = watched(
            self.watch,
            evidence() if measurement is None else measurement,
            look,
            own_steering=self.own_steering,
            is_promised=self.is_promised,
        )
        self.watch = seen.watch
        return seen


def breaks(seen: Watched) -> list[ReasonCode]:
    return [reason.code for reason in seen.continuity.breaks]


def faults(seen: Watched) -> list[ReasonCode]:
    return [reason.code for reason in seen.measurement.faults] if isinstance(seen.measurement, Evidence) else []


def remarks(seen: Watched) -> list[ReasonCode]:
    return [reason.code for reason in seen.remarks]


def with_fault(code: ReasonCode) -> Evidence:
    return evidence(faults=(Reason(code, "as the source says"),))


@pytest.mark.parametrize("own_steering", [False, True])
def test_a_quiet_host_says_nothing(own_steering: bool) -> None:
    host = Host(own_steering=own_steering)
    for _ in range(5):
        seen = host.cycle()
        assert (breaks(seen), faults(seen), remarks(seen), seen.jump_ns) == ([], [], [], None)
        assert seen.measurement == evidence()


@pytest.mark.parametrize("jump_ns", [5 * MS, -5 * MS, 36 * SECOND])
def test_a_step_is_a_break_and_its_size_is_told(jump_ns: int) -> None:
    host = Host()
    host.cycle()
    seen = host.cycle(jump_ns=jump_ns)
    assert (breaks(seen), seen.jump_ns) == ([C.CLOCK_STEPPED], jump_ns)
    assert breaks(host.cycle()) == []


def test_a_strangers_step_is_not_known_to_the_source() -> None:
    host = Host()
    said = evidence(offset_ns=7 * MS, last_offset_ns=3 * MS, update_id="1")
    host.cycle(said)
    # Even by just what the time daemon wanted to correct: it goes on wanting to.
    seen = host.cycle(said, jump_ns=-7 * MS)
    assert breaks(seen) == [C.CLOCK_STEPPED]
    assert (seen.continuity.is_known_to_source, seen.continuity.set_back_ns) == (False, 7 * MS)
    # Nor by what the time daemon finds at once: that has the other sign.
    seen = host.cycle(evidence(offset_ns=0, last_offset_ns=80 * MS, update_id="2"), jump_ns=80 * MS)
    assert not seen.continuity.is_known_to_source


@pytest.mark.parametrize("jump_ns", [2_000, -2_000, 300_000, -300_000, 5 * MS])
def test_a_strangers_step_beside_a_clock_that_is_right_is_not_taken_for_the_time_daemons(jump_ns: int) -> None:
    host = Host()
    said = evidence(offset_ns=900, last_offset_ns=1_100, update_id="1")
    host.cycle(said)
    assert not host.cycle(said, jump_ns=jump_ns).continuity.is_known_to_source
    said = replace(said, update_id="2")
    assert not host.cycle(said, jump_ns=jump_ns).continuity.is_known_to_source


def test_a_small_offset_that_was_slewed_away_is_no_step_of_the_time_daemons() -> None:
    host = Host()
    host.cycle(evidence(offset_ns=50_000, last_offset_ns=50_000, update_id="1"))
    seen = host.cycle(evidence(offset_ns=0, last_offset_ns=50_000, update_id="1"), jump_ns=-50_000)
    assert not seen.continuity.is_known_to_source


@pytest.mark.parametrize(
    ("before", "after", "jump_ns"),
    [
        # makestep at an update, first or later, and the command of that name.
        (evidence(offset_ns=None, bound_ns=None, update_id="never"), (500 * MS, "1"), -500 * MS),
        (evidence(offset_ns=40 * MS, update_id="1"), (-700 * MS, "2"), 660 * MS),
        (evidence(offset_ns=40 * MS, update_id="1"), (-700 * MS, "1"), -40 * MS),
    ],
)
def test_a_step_by_the_time_daemon_itself_is_known_to_it(
    before: Evidence, after: tuple[int, str], jump_ns: int
) -> None:
    host = Host()
    host.cycle(before)
    stepped = evidence(offset_ns=0, last_offset_ns=after[0], update_id=after[1])
    seen = host.cycle(stepped, jump_ns=jump_ns)
    assert (breaks(seen), seen.jump_ns) == ([C.CLOCK_STEPPED], jump_ns)
    assert (seen.continuity.is_known_to_source, seen.continuity.set_back_ns) == (True, 0)
    host = Host()
    host.cycle(before)
    assert not host.cycle(stepped, jump_ns=jump_ns + 20 * MS).continuity.is_known_to_source
    host = Host()
    host.cycle(before)
    asleep = replace(before, steering_id="other")
    host.steering_id = "one"
    host.cycle(asleep)
    host.steering_id = "other"
    assert not host.cycle(stepped, jump_ns=jump_ns).continuity.is_known_to_source, "not with another break beside it"


@pytest.mark.parametrize(("gained_ppb", "slew_ppb"), [(0, 0), (30_000, 30_001), (-30_000, 30_000)])
def test_how_fast_the_clock_was_moved_is_told_either_way(gained_ppb: int, slew_ppb: int) -> None:
    host = Host()
    assert host.cycle().slew_ppb is None, "nothing to compare with"
    assert host.cycle(gained_ppb=gained_ppb).slew_ppb == slew_ppb


def test_a_witness_that_disagrees_is_not_known_to_the_source() -> None:
    host = Host()
    host.cycle()
    seen = host.cycle(with_fault(C.PHC_FROZEN))
    assert breaks(seen) == [C.PHC_FROZEN]
    assert not seen.continuity.is_known_to_source


@pytest.mark.parametrize("jump_ns", [37 * SECOND, -37 * SECOND, 37 * SECOND + 20 * MS])
def test_a_step_of_tai_minus_utc_is_told_once_under_that_name(jump_ns: int) -> None:
    host = Host()
    host.cycle()
    seen = host.cycle(evidence(offset_ns=jump_ns), jump_ns=jump_ns)
    assert (breaks(seen), seen.jump_ns) == ([C.TAI_SLIP], jump_ns)
    # It goes on being a fault of the clock, not a second break.
    seen = host.cycle(evidence(offset_ns=jump_ns))
    assert (breaks(seen), faults(seen)) == ([], [C.TAI_SLIP])


@pytest.mark.parametrize(("tai_offset_s", "is_slip"), [(37, True), (None, True), (36, False)])
def test_a_slip_is_by_what_the_kernel_was_told_or_else_the_usual(tai_offset_s: int | None, is_slip: bool) -> None:
    host = Host()
    host.steer(tai_offset_s=tai_offset_s)
    seen = host.cycle(evidence(offset_ns=-37 * SECOND))
    assert breaks(seen) == ([C.TAI_SLIP] if is_slip else [])


def test_a_host_whose_kernel_cannot_be_read_is_watched_by_its_clocks_alone() -> None:
    host = Host(own_steering=True)
    host.kernel = None
    host.cycle()
    for _ in range(5):
        assert breaks(host.cycle(gained_ppb=900_000)) == []
    assert breaks(host.cycle(jump_ns=SECOND)) == [C.CLOCK_STEPPED]


@pytest.mark.parametrize(
    ("own_steering", "gained_ppb", "is_seen"),
    [(False, 590_000, False), (False, 610_000, True), (True, 90_000, False), (True, 110_000, True)],
)
def test_a_rate_that_the_kernel_does_not_explain_breaks_once_it_lasts(
    own_steering: bool, gained_ppb: int, is_seen: bool
) -> None:
    host = Host(own_steering=own_steering)
    host.cycle()
    found = [breaks(host.cycle(gained_ppb=gained_ppb)) for _ in range(6)]
    assert found == [[], [], [C.WITNESS_DISAGREES] if is_seen else [], [], [], []]
    assert faults(host.cycle(gained_ppb=gained_ppb)) == ([C.WITNESS_DISAGREES] if is_seen else [])
    assert faults(host.cycle()) == []


def test_a_servo_that_changes_its_mind_between_two_looks_is_no_contradiction() -> None:
    host = Host(own_steering=True)
    host.cycle()
    for _ in range(10):
        assert faults(host.cycle(gained_ppb=900_000)) == []
        assert faults(host.cycle(gained_ppb=900_000)) == []
        assert faults(host.cycle()) == []


def test_a_rate_between_the_corrections_at_either_end_is_explained() -> None:
    host = Host(own_steering=True)
    host.cycle()
    for freq_ppb in (500_000.0, 0.0, 500_000.0, 0.0, 500_000.0):
        host.steer(freq_ppb=freq_ppb)
        seen = host.cycle(gained_ppb=250_000)
        assert (breaks(seen), faults(seen)) == ([], [])


def test_the_kernels_own_loop_hides_its_rate_and_is_not_judged_where_others_steer() -> None:
    host = Host()
    host.steer(status=PLL)
    for _ in range(6):
        seen = host.cycle(gained_ppb=5_000_000)
        assert (breaks(seen), faults(seen)) == ([], [])


def test_a_foreign_loop_breaks_where_our_units_steer_and_stays_a_fault() -> None:
    for own_steering in (False, True):
        host = Host(own_steering=own_steering)
        host.cycle()
        host.steer(status=PLL)
        seen = host.cycle()
        assert breaks(seen) == ([C.FOREIGN_ADJUSTER] if own_steering else [])
        for _ in range(70):
            seen = host.cycle()
            assert breaks(seen) == []
            assert faults(seen) == ([C.FOREIGN_ADJUSTER] if own_steering else [])
        host.steer(status=0)
        assert faults(host.cycle()) == []


def test_a_loop_left_over_from_before_our_start_is_nobodys_doing() -> None:
    host = Host(own_steering=True)
    host.steer(status=PLL)
    for _ in range(3):
        seen = host.cycle()
        assert (breaks(seen), faults(seen)) == ([], [])


BREAKING = (C.WITNESS_DISAGREES, C.PHC_FROZEN, C.SERVO_PINNED, C.TAI_SLIP)


@pytest.mark.parametrize("own_steering", [False, True])
@pytest.mark.parametrize("code", ReasonCode)
def test_which_faults_of_a_source_break_continuity(code: ReasonCode, own_steering: bool) -> None:
    host = Host(own_steering=own_steering)
    host.cycle()
    seen = host.cycle(with_fault(code))
    is_breaking = code in BREAKING or (code is C.FOREIGN_ADJUSTER and own_steering)
    assert breaks(seen) == ([code] if is_breaking else [])
    assert faults(seen) == [code], "and it stays the source's fault, told once"


def test_a_witness_that_comes_and_goes_is_one_disruption_until_it_was_quiet_for_a_minute() -> None:
    host = Host()
    assert breaks(host.cycle(with_fault(C.PHC_FROZEN))) == [C.PHC_FROZEN]
    for _ in range(20):
        for _ in range(50):
            assert breaks(host.cycle()) == []
        assert breaks(host.cycle(with_fault(C.PHC_FROZEN))) == []
    for _ in range(61):
        host.cycle()
    assert breaks(host.cycle(with_fault(C.PHC_FROZEN))) == [C.PHC_FROZEN]


def test_a_witness_that_comes_back_while_a_bound_is_promised_breaks_again() -> None:
    host = Host()
    assert breaks(host.cycle(with_fault(C.PHC_FROZEN))) == [C.PHC_FROZEN]
    host.cycle()
    host.is_promised = True
    assert breaks(host.cycle(with_fault(C.PHC_FROZEN))) == [C.PHC_FROZEN]


def test_a_silent_source_does_not_silence_our_own_witnesses() -> None:
    host = Host(own_steering=True)
    host.cycle()
    host.steer(status=PLL)
    seen = host.cycle(silence())
    assert breaks(seen) == [C.FOREIGN_ADJUSTER]
    assert seen.measurement == silence()


def test_a_leap_second_to_come_is_a_remark() -> None:
    host = Host()
    host.steer(status=INS, state=KernelState.INSERT)
    for measurement in (evidence(), silence()):
        seen = host.cycle(measurement)
        assert (breaks(seen), faults(seen), remarks(seen)) == ([], [], [C.LEAP_PENDING])
        assert seen.measurement == measurement
    told = evidence(remarks=(Reason(C.LEAP_PENDING, "the source tells it too"),))
    assert remarks(host.cycle(told)) == []


def test_a_leap_second_that_the_kernel_is_in_keeps_the_bound_whatever_the_source_says() -> None:
    host = Host()
    host.cycle()
    host.steer(state=KernelState.IN_PROGRESS)
    seen = host.cycle(jump_ns=-SECOND)
    assert (breaks(seen), remarks(seen)) == ([], [C.LEAP_IN_PROGRESS])
    assert isinstance(seen.measurement, Evidence)
    assert seen.measurement.leap_in_progress


@pytest.mark.parametrize(
    ("before", "after", "is_explained"),
    [
        (KernelState.INSERT, KernelState.JUST_HAPPENED, True),
        (KernelState.DELETE, KernelState.JUST_HAPPENED, True),
        (KernelState.INSERT, KernelState.IN_PROGRESS, True),
        (KernelState.IN_PROGRESS, KernelState.JUST_HAPPENED, True),
        (KernelState.JUST_HAPPENED, KernelState.JUST_HAPPENED, False),
        (KernelState.OK, KernelState.JUST_HAPPENED, False),
        (KernelState.INSERT, KernelState.INSERT, False),
        (KernelState.INSERT, KernelState.OK, False),
    ],
)
def test_a_second_that_the_kernel_leapt_between_two_looks_is_no_step(
    before: KernelState, after: KernelState, is_explained: bool
) -> None:
    host = Host()
    host.steer(state=before)
    # The look after one in progress is explained in any case; a look in between makes sure that this is not why.
    host.cycle()
    host.watch = replace(host.watch, was_leaping=False)
    host.steer(state=after)
    assert breaks(host.cycle(jump_ns=-SECOND)) == ([] if is_explained else [C.CLOCK_STEPPED])


def test_another_steering_process_is_a_break() -> None:
    host = Host()
    host.steering_id = "chronyd-1"
    host.cycle()
    host.steering_id = "chronyd-2"
    assert breaks(host.cycle()) == [C.STEERING_CHANGED]
