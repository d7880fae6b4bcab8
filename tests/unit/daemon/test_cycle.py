import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clockgated import host
from clockgated.clock.model import ClockState, Evidence, Reading, Reason, ReasonCode, Silence, SourceKind
from clockgated.clock.state import StatePolicy
from clockgated.clock.witness import KernelLook, KernelState
from clockgated.cycle import Cycle, next_beat_ns
from clockgated.drill import DrillBoard, Freeze, Offset, Step
from clockgated.lease_desk import LeaseDesk
from clockgated.memory.keeper import EPOCHS, LAST_READING, Keeper
from clockgated.memory.last_reading import LastReadingFile
from clockgated.memory.resume import SavedReading
from clockgated.publish import Publisher
from hypothesis import given
from hypothesis import strategies as st
from support.evidence import SECOND, evidence, silence
from support.readings import reading

MS = 1_000_000
WALL_NS = 1_800_000_000 * SECOND


class Host:
    """Clocks that tests move; a source beside them that answers what it is told to."""

    def __init__(self) -> None:
        self.boot_ns = 100 * SECOND
        self.asleep_ns = 50 * SECOND
        self.stepped_ns = WALL_NS
        self.gained_ns = 0
        self.preempted_ns = [0]
        self.answer: Callable[[int], Evidence | Silence] = evidence
        self.kind = SourceKind.CHRONY

    def read(self) -> Evidence | Silence:
        as_of_boot_ns = self.boot_ns
        self.boot_ns += 10 * MS
        return self.answer(as_of_boot_ns)

    def stamp(self) -> host.Stamp:
        late_ns = self.preempted_ns[0]
        self.preempted_ns = self.preempted_ns[1:] + self.preempted_ns[:1]
        wall_ns = self.boot_ns + self.stepped_ns + late_ns
        return host.Stamp(self.boot_ns, self.boot_ns - self.asleep_ns, wall_ns, error_ns=late_ns)

    def rate(self) -> host.RateStamp:
        return host.RateStamp(self.boot_ns - self.gained_ns, self.boot_ns, 0)

    def mono_ns(self) -> int:
        return self.boot_ns - self.asleep_ns


class Daemon:
    """A cycle over such a host."""

    def __init__(
        self,
        policy: StatePolicy | None = None,
        *,
        clocks: Host | None = None,
        publisher: Publisher | None = None,
        **parts: Any,
    ) -> None:
        self.host = clocks or Host()
        self.kernel: KernelLook | None = KernelLook(0, 0.0, 10_000, 0, KernelState.OK)
        self.publisher = publisher or Publisher(reading(sequence=0, epoch=1))
        self.drills = DrillBoard()
        self.cycle = Cycle(
            source=self.host,
            publisher=self.publisher,
            drills=self.drills,
            policy=policy or StatePolicy(),
            boot_id="boot-1",
            interval_s=0.001,
            stamp=self.host.stamp,
            rate=self.host.rate,
            kernel=lambda: self.kernel,
            mono_ns=self.host.mono_ns,
            **parts,
        )

    def cycles(self, count: int = 1) -> Reading:
        for _ in range(count):
            self.host.boot_ns += SECOND
            last = self.cycle.run_once()
            assert self.publisher.latest() is last
        return last


def codes(one: Reading) -> list[ReasonCode]:
    return [reason.code for reason in one.reasons]


def test_good_measurements_lead_to_a_published_bound() -> None:
    daemon = Daemon()
    assert daemon.cycles(2).state is ClockState.ACQUIRING
    last = daemon.cycles()
    assert last.state is ClockState.SYNCHRONIZED
    assert (last.sequence, last.epoch, last.boot_id) == (3, 1, "boot-1")
    # Dated when the question was asked, not when the answer came.
    assert last.as_of_boot_ns == daemon.host.boot_ns - 10 * MS


@pytest.mark.parametrize("step_ns", [5 * MS, -5 * MS])
def test_a_step_of_the_wall_clock_is_noticed_in_the_same_cycle(step_ns: int) -> None:
    daemon = Daemon()
    daemon.cycles(4)
    daemon.host.stepped_ns += step_ns
    last = daemon.cycles()
    assert (last.state, last.epoch) == (ClockState.DISRUPTED, 2)
    assert codes(last) == [ReasonCode.CLOCK_STEPPED]
    assert daemon.cycles().state is ClockState.ACQUIRING


def test_a_step_smaller_than_what_three_torn_looks_can_tell_is_none() -> None:
    daemon = Daemon()
    daemon.host.preempted_ns = [80 * MS, 70 * MS, 90 * MS]
    daemon.cycles(4)
    assert daemon.cycles(4).epoch == 1
    daemon.host.preempted_ns = [0]
    assert daemon.cycles(4).epoch == 1


def test_a_time_daemon_of_ours_is_told_once_to_forget_what_it_measured_before_a_step() -> None:
    told: list[int] = []
    publisher = Publisher(reading(sequence=0, epoch=1))

    def forget() -> bool:
        told.append(publisher.latest().epoch)
        return True

    daemon = Daemon(publisher=publisher, forget=forget)
    daemon.cycles(4)
    daemon.host.stepped_ns += 5 * MS
    daemon.cycles(4)
    assert told == [2], "after the reading that says so was published"
    daemon.cycle.reconfigure(source=daemon.host, policy=StatePolicy(), interval_s=1)
    daemon.host.stepped_ns += 5 * MS
    daemon.cycles(4)
    assert told == [2], "the new source is nobody's that could be told"


@pytest.mark.parametrize("forgets", [True, False])
def test_samples_of_a_time_daemon_that_forgot_need_no_waiting_out(forgets: bool) -> None:
    daemon = Daemon(forget=lambda: forgets)
    daemon.host.answer = lambda at_ns: evidence(at_ns, update_id="1", oldest_sample_ns=100 * SECOND)
    daemon.cycles(4)
    daemon.host.stepped_ns += 5 * MS
    daemon.cycles(2)
    daemon.host.answer = lambda at_ns: evidence(at_ns, update_id="2", oldest_sample_ns=3 * SECOND)
    # Two seconds after the break, by the whole seconds that chronyd tells, it looks three seconds old.
    assert daemon.cycles().state is (ClockState.ACQUIRING if forgets else ClockState.DISRUPTED)


def test_a_pretended_step_makes_nobody_forget() -> None:
    told: list[int] = []

    def forget() -> bool:
        told.append(1)
        return True

    daemon = Daemon(forget=forget)
    daemon.cycles(4)
    daemon.drills.start(Step(SECOND), 10 * SECOND)
    assert daemon.cycles().epoch == 2
    assert told == []


def test_sleep_is_noticed() -> None:
    daemon = Daemon()
    daemon.cycles(4)
    daemon.host.boot_ns += 60 * SECOND
    daemon.host.asleep_ns += 60 * SECOND
    last = daemon.cycles()
    assert last.state is ClockState.DISRUPTED
    assert codes(last) == [ReasonCode.SUSPENDED]


def test_a_restarted_time_daemon_is_noticed_across_its_silence() -> None:
    daemon = Daemon()
    daemon.host.answer = lambda at_ns: evidence(at_ns, steering_id="chronyd-1")
    daemon.cycles(4)
    daemon.host.answer = silence
    assert daemon.cycles(3).state is ClockState.HOLDOVER
    daemon.host.answer = lambda at_ns: evidence(at_ns, steering_id="chronyd-2")
    assert codes(daemon.cycles()) == [ReasonCode.STEERING_CHANGED]


def test_one_preempted_look_at_the_clocks_is_no_step() -> None:
    daemon = Daemon()
    daemon.host.preempted_ns = [80 * MS, 0, 90 * MS, 0, 0, 70 * MS, 0]
    assert daemon.cycles(40).epoch == 1


@pytest.mark.parametrize("is_seen_late", [False, True])
def test_a_leap_second_is_neither_a_step_nor_a_loss(is_seen_late: bool) -> None:
    daemon = Daemon()
    daemon.cycles(4)
    daemon.host.answer = lambda at_ns: evidence(at_ns, leap_in_progress=True)
    assert daemon.cycles().state is ClockState.HOLDOVER
    daemon.host.stepped_ns -= SECOND
    if not is_seen_late:
        assert daemon.cycles().state is ClockState.HOLDOVER
    daemon.host.answer = evidence
    assert daemon.cycles().state is ClockState.SYNCHRONIZED


def test_a_frozen_source_is_holdover_until_the_drill_ends() -> None:
    daemon = Daemon()
    daemon.cycles(4)
    daemon.drills.start(Freeze(), daemon.host.boot_ns + 3 * SECOND)
    for _ in range(2):
        last = daemon.cycles()
        assert last.state is ClockState.HOLDOVER
        assert codes(last) == [ReasonCode.SOURCE_UNREACHABLE, ReasonCode.DRILL]
    last = daemon.cycles()
    assert (last.state, codes(last)) == (ClockState.SYNCHRONIZED, [])


def test_a_large_pretended_offset_makes_the_clock_unusable_and_says_drill() -> None:
    daemon = Daemon()
    daemon.cycles(4)
    daemon.drills.start(Offset(60 * MS), daemon.host.boot_ns + 100 * SECOND)
    last = daemon.cycles()
    assert last.state is ClockState.FREE_RUNNING
    assert last.relative_bound_ns == 61 * MS
    assert codes(last) == [ReasonCode.BOUND_OVER_LIMIT, ReasonCode.DRILL]
    daemon.drills.clear()
    assert daemon.cycles(3).state is ClockState.SYNCHRONIZED


def test_a_pretended_step_is_one_new_epoch() -> None:
    daemon = Daemon()
    daemon.cycles(4)
    daemon.drills.start(Step(SECOND), daemon.host.boot_ns)
    last = daemon.cycles()
    assert (last.state, last.epoch) == (ClockState.DISRUPTED, 2)
    assert codes(last) == [ReasonCode.CLOCK_STEPPED, ReasonCode.DRILL]
    last = daemon.cycles(3)
    assert (last.state, last.epoch, codes(last)) == (ClockState.SYNCHRONIZED, 2, [])


def test_a_witness_that_contradicts_breaks_once_and_closes_the_gate_while_it_lasts() -> None:
    daemon = Daemon()
    assert daemon.cycles(4).state is ClockState.SYNCHRONIZED
    frozen = (Reason(ReasonCode.PHC_FROZEN, "frozen"),)
    daemon.host.answer = lambda at_ns: evidence(at_ns, faults=frozen)
    last = daemon.cycles()
    assert (last.state, last.epoch, codes(last)) == (ClockState.DISRUPTED, 2, [ReasonCode.PHC_FROZEN])
    last = daemon.cycles(70)
    assert (last.state, last.epoch, codes(last)) == (ClockState.DISRUPTED, 2, [ReasonCode.PHC_FROZEN])
    daemon.host.answer = evidence
    last = daemon.cycles(3)
    assert (last.state, last.epoch, codes(last)) == (ClockState.SYNCHRONIZED, 2, [])
    daemon.host.answer = lambda at_ns: evidence(at_ns, faults=frozen)
    assert daemon.cycles().epoch == 3, "a bound was promised again, so it breaks again"


@pytest.mark.parametrize("own_steering", [False, True])
def test_somebody_else_at_the_kernels_clock_counts_where_our_units_steer(own_steering: bool) -> None:
    daemon = Daemon(own_steering=own_steering)
    daemon.cycles(4)
    assert daemon.kernel is not None
    daemon.kernel = replace(daemon.kernel, status=1)
    last = daemon.cycles()
    assert (last.epoch, codes(last)) == ((2, [ReasonCode.FOREIGN_ADJUSTER]) if own_steering else (1, []))


def test_a_rate_that_nobody_explains_is_a_disruption() -> None:
    daemon = Daemon()
    daemon.cycles(4)
    for _ in range(3):
        daemon.host.gained_ns += 5 * MS
        last = daemon.cycles()
    assert (last.state, codes(last)) == (ClockState.DISRUPTED, [ReasonCode.WITNESS_DISAGREES])


def test_a_leap_second_to_come_is_told_beside_a_good_reading() -> None:
    daemon = Daemon()
    assert daemon.kernel is not None
    daemon.kernel = replace(daemon.kernel, status=0x10, state=KernelState.INSERT)
    last = daemon.cycles(4)
    assert (last.state, codes(last)) == (ClockState.SYNCHRONIZED, [ReasonCode.LEAP_PENDING])


def test_the_kernels_leap_second_is_holdover_under_a_source_that_does_not_know_of_it() -> None:
    daemon = Daemon()
    daemon.cycles(4)
    assert daemon.kernel is not None
    daemon.kernel = replace(daemon.kernel, state=KernelState.IN_PROGRESS)
    daemon.host.stepped_ns -= SECOND
    last = daemon.cycles()
    assert (last.state, codes(last)) == (ClockState.HOLDOVER, [ReasonCode.LEAP_IN_PROGRESS])
    daemon.kernel = replace(daemon.kernel, state=KernelState.JUST_HAPPENED)
    assert daemon.cycles().state is ClockState.SYNCHRONIZED


def test_the_estimate_stands_beside_the_bound_and_goes_with_its_source() -> None:
    daemon = Daemon()
    daemon.host.answer = lambda at_ns: evidence(at_ns, estimate_95_ns=700)
    assert daemon.cycles(4).estimate_95_ns == 700
    daemon.host.answer = silence
    assert daemon.cycles().estimate_95_ns is None


@pytest.mark.parametrize(
    ("offset_ns", "own_steering", "is_leased", "is_told"),
    [
        (101 * MS, True, True, True),
        (-101 * MS, True, True, True),
        (100 * MS, True, True, False),
        (101 * MS, True, False, False),
        # A time daemon that is not ours knows of no lease.
        (101 * MS, False, True, False),
        (None, True, True, False),
    ],
)
def test_a_step_that_is_needed_and_forbidden_is_told(
    offset_ns: int | None, own_steering: bool, is_leased: bool, is_told: bool
) -> None:
    desk = LeaseDesk()
    daemon = Daemon(desk=desk, own_steering=own_steering)
    daemon.host.answer = lambda at_ns: evidence(at_ns, offset_ns=offset_ns)
    if is_leased:
        desk.open("train", 0)
    last = daemon.cycles(4)
    assert (ReasonCode.STEP_FORBIDDEN_BY_LEASE in codes(last)) is is_told
    if is_told:
        assert "lease break" in last.reasons[-1].detail
        desk.close("1")
        assert ReasonCode.STEP_FORBIDDEN_BY_LEASE not in codes(daemon.cycles())


def test_reconfiguring_the_same_kind_of_source_goes_on() -> None:
    daemon = Daemon()
    daemon.cycles(4)
    policy = StatePolicy(max_bound_ns=MS // 2)
    daemon.cycle.reconfigure(source=daemon.host, policy=policy, interval_s=1)
    assert daemon.cycles().state is ClockState.FREE_RUNNING


def test_reconfiguring_to_another_kind_of_source_starts_anew_in_the_same_epoch() -> None:
    daemon = Daemon()
    daemon.host.answer = lambda at_ns: evidence(at_ns, steering_id="chronyd-1")
    daemon.cycles(4)
    other = Host()
    other.kind = SourceKind.KERNEL
    other.answer = lambda at_ns: evidence(at_ns, kind=SourceKind.KERNEL, steering_id="chronyd[7]@5")
    daemon.cycle.reconfigure(source=other, policy=StatePolicy(), interval_s=1)
    last = daemon.cycles()
    assert (last.state, last.epoch, last.sequence) == (ClockState.ACQUIRING, 1, 5)


def test_a_change_of_servo_of_ours_is_a_new_epoch() -> None:
    for was_ours, is_ours in ((True, True), (False, True), (True, False)):
        daemon = Daemon(own_steering=was_ours)
        daemon.cycles(4)
        other = Host()
        other.kind = SourceKind.PTP
        other.answer = lambda at_ns: evidence(at_ns, kind=SourceKind.PTP)
        daemon.cycle.reconfigure(source=other, policy=StatePolicy(), interval_s=1, own_steering=is_ours)
        last = daemon.cycles()
        assert (last.epoch, codes(last)) == (2, [ReasonCode.STEERING_CHANGED])
        last = daemon.cycles(3)
        assert (last.state, last.epoch) == (ClockState.SYNCHRONIZED, 2)


class Kept:
    """Daemons that follow each other on one node, each with a cycle over the same host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clocks = Host()

    def started(self, publisher: Publisher | None = None) -> Daemon:
        keeper = Keeper.of_folders(self.folder, self.folder, "boot-1")
        opening = keeper.open(SourceKind.CHRONY, StatePolicy(), None, self.clocks.stamp)
        return Daemon(clocks=self.clocks, publisher=publisher, opening=opening, keeper=keeper)

    def saved(self) -> SavedReading:
        found = LastReadingFile(self.folder / LAST_READING).load()
        assert isinstance(found, SavedReading)
        return found


def test_every_cycle_is_kept_and_the_next_daemon_goes_on_from_it(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    last = kept.started().cycles(4)
    assert (kept.saved().reading, last.state) == (last, ClockState.SYNCHRONIZED)
    kept.clocks.boot_ns += 20 * SECOND
    again = kept.started().cycles()
    assert (again.state, again.epoch) == (ClockState.SYNCHRONIZED, last.epoch)
    assert again.sequence == last.sequence + 2


def test_a_time_daemon_that_was_replaced_while_we_were_away_is_noticed(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.clocks.answer = lambda at_ns: evidence(at_ns, steering_id="chronyd-1")
    last = kept.started().cycles(4)
    kept.clocks.answer = lambda at_ns: evidence(at_ns, steering_id="chronyd-2")
    again = kept.started().cycles()
    assert (again.epoch, codes(again)) == (last.epoch + 1, [ReasonCode.STEERING_CHANGED])


def test_a_step_between_the_start_and_the_first_cycle_is_noticed(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    last = kept.started().cycles(4)
    daemon = kept.started()
    daemon.host.stepped_ns += SECOND
    again = daemon.cycles()
    assert (again.epoch, codes(again)) == (last.epoch + 1, [ReasonCode.CLOCK_STEPPED])


def test_a_new_epoch_is_journaled_and_saved_before_it_is_published(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    seen: list[tuple[int, str, int]] = []

    class Watching(Publisher):
        def publish(self, reading: Reading) -> None:
            journal = (tmp_path / EPOCHS).read_text().splitlines()
            seen.append((kept.saved().reading.epoch, journal[-1], len(journal)))
            super().publish(reading)

    daemon = kept.started(Watching(reading(sequence=0)))
    before = daemon.cycles(4)
    daemon.host.stepped_ns -= SECOND
    after = daemon.cycles(2)
    assert after.epoch == before.epoch + 1
    (epoch, line, count), (_, _, later) = seen[-2:]
    assert (epoch, count, later) == (after.epoch, 2, 2)
    assert '"code": "CLOCK_STEPPED"' in line
    assert '"jump_ns": -1000000000' in line


def test_a_pretended_step_is_journaled_as_one_that_set_nothing(tmp_path: Path) -> None:
    daemon = Kept(tmp_path).started()
    daemon.cycles(4)
    daemon.drills.start(Step(SECOND), daemon.host.boot_ns)
    daemon.cycles()
    assert '"jump_ns": null' in (tmp_path / EPOCHS).read_text().splitlines()[-1]


def test_a_new_cycle_goes_on_counting_where_the_publisher_is() -> None:
    daemon = Daemon()
    daemon.publisher.publish(reading(sequence=41, epoch=6))
    cycle = Cycle(
        source=daemon.host, publisher=daemon.publisher, drills=daemon.drills, policy=StatePolicy(), boot_id="boot-1"
    )
    assert (cycle.run_once().sequence, daemon.publisher.latest().epoch) == (42, 6)


def test_a_cycle_that_fails_publishes_nothing_and_the_next_one_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    daemon, stop, heard = Daemon(), threading.Event(), []
    answers = iter([evidence, None, evidence])

    def answer(at_ns: int) -> Evidence | Silence:
        make = next(answers)
        if make is None:
            raise RuntimeError("a broken promise")
        return make(at_ns)

    def on_cycle() -> None:
        heard.append(daemon.publisher.latest().sequence)
        if len(heard) == 2:
            stop.set()

    daemon.host.answer = answer
    with caplog.at_level(logging.ERROR):
        daemon.cycle.run(stop, on_cycle)
    assert heard == [1, 2]
    assert "a broken promise" in caplog.text
    assert "Traceback" in caplog.text


def test_run_ends_when_told_to_while_it_waits() -> None:
    daemon, stop, first = Daemon(), threading.Event(), threading.Event()
    daemon.cycle.reconfigure(source=daemon.host, policy=StatePolicy(), interval_s=3600)
    thread = threading.Thread(target=daemon.cycle.run, args=(stop, first.set))
    thread.start()
    assert first.wait(20)
    stop.set()
    thread.join(20)
    assert not thread.is_alive()
    assert daemon.publisher.latest().sequence == 1


def test_run_keeps_its_beat_and_skips_what_it_missed() -> None:
    daemon, stop, begun = Daemon(), threading.Event(), []
    daemon.cycle.reconfigure(source=daemon.host, policy=StatePolicy(), interval_s=1)
    first_ns = daemon.host.mono_ns()
    took = iter([SECOND // 4, SECOND // 4, 2 * SECOND + SECOND // 2, SECOND // 4])

    class Waiting(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            daemon.host.boot_ns += round(timeout * SECOND)
            return self.is_set()

    stop = Waiting()

    def answer(at_ns: int) -> Evidence:
        begun.append((daemon.host.mono_ns() - first_ns) // SECOND)
        daemon.host.boot_ns += next(took)
        return evidence(at_ns)

    daemon.host.answer = answer
    daemon.cycle.run(stop, lambda: stop.set() if len(begun) == 4 else None)
    assert begun == [0, 1, 2, 5]


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(1, 10**10))
def test_the_next_beat_is_on_the_grid_and_in_the_future(due_ns: int, late_ns: int, interval_ns: int) -> None:
    beat_ns = next_beat_ns(due_ns, due_ns + late_ns, interval_ns)
    assert beat_ns >= due_ns + late_ns
    assert beat_ns > due_ns
    assert (beat_ns - due_ns) % interval_ns == 0
    assert beat_ns - interval_ns <= due_ns + late_ns
