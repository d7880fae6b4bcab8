import logging
from dataclasses import replace
from pathlib import Path

import pytest
from clockgated import host
from clockgated.clock.continuity import Look
from clockgated.clock.model import ClockState, Reason, ReasonCode, SourceKind
from clockgated.clock.state import StatePolicy, reading_of
from clockgated.clock.witness import KernelLook, KernelState
from clockgated.memory.epochs import Disruption, EpochJournal, encode
from clockgated.memory.keeper import EPOCHS, LAST_READING, Keeper, Opening
from clockgated.memory.last_reading import LastReadingFile
from clockgated.memory.resume import SavedReading
from clockgated.units import NS_PER_MS, NS_PER_S
from support.saved_readings import BOOT, LOOK, READING, SAVED, STEERING

POLICY = StatePolicy()
KERNEL = KernelLook(0, float(STEERING.freq_ppb), STEERING.tick_us, 0, KernelState.OK)


class Node:
    """A node's folders over several starts of a daemon."""

    def __init__(self, folder: Path) -> None:
        self.run, self.state = folder / "run", folder / "state"
        self.run.mkdir()
        self.boot_id = BOOT

    def keeper(self) -> Keeper:
        return Keeper.of_folders(self.run, self.state, self.boot_id)

    def left(self, saved: SavedReading = SAVED) -> None:
        """A daemon of this node saved this and is gone."""
        LastReadingFile(self.run / LAST_READING).save(saved)

    def open(self, after_s: float = 10, jump_ns: int = 0, kind: SourceKind = SourceKind.CHRONY) -> Opening:
        ns = int(after_s * NS_PER_S)
        now = host.Stamp(LOOK.boot_ns + ns, LOOK.mono_ns + ns, LOOK.wall_ns + ns + jump_ns)
        return self.keeper().open(kind, POLICY, KERNEL, lambda: now)

    def journal(self) -> list[Disruption]:
        return list(EpochJournal(self.state / EPOCHS).read().disruptions)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_the_first_start_ever_begins_an_epoch_and_says_why(node: Node) -> None:
    opening = node.open()
    assert opening.track.state is ClockState.UNKNOWN
    (begun,) = node.journal()
    assert (begun.epoch, begun.boot_id, begun.code) == (opening.track.epoch, BOOT, "STARTING")
    assert "without a reading to go on from" in begun.detail
    assert "No such file" in begun.detail
    assert (begun.at_boot_ns, begun.wall_ns) == (opening.look.boot_ns, opening.look.wall_ns)


def test_a_restart_goes_on_in_the_same_epoch_and_journals_nothing(node: Node) -> None:
    node.left()
    opening = node.open()
    assert (opening.track.state, opening.track.epoch) == (ClockState.HOLDOVER, READING.epoch)
    assert node.journal() == []


def test_any_number_of_restarts_keeps_the_epoch_and_ages_the_bound(node: Node) -> None:
    node.left()
    for number in range(1, 6):
        track = node.open(after_s=10 * number).track
        assert track.epoch == READING.epoch
        assert reading_of(track, BOOT, POLICY).relative_bound_ns == 200_000 + number * 10 * 50_000
        assert reading_of(track, BOOT, POLICY).sequence == READING.sequence + number


def test_a_step_while_away_is_journaled_before_anybody_sees_the_new_epoch(node: Node) -> None:
    node.left()
    opening = node.open(jump_ns=-NS_PER_S)
    assert (opening.track.state, opening.track.epoch) == (ClockState.DISRUPTED, READING.epoch + 1)
    (begun,) = node.journal()
    assert (begun.epoch, begun.code, begun.jump_ns) == (READING.epoch + 1, "CLOCK_STEPPED", -NS_PER_S)


def test_a_start_that_dies_before_its_first_cycle_does_not_give_an_epoch_out_twice(node: Node) -> None:
    node.left()
    first = node.open(jump_ns=NS_PER_S).track.epoch
    second = node.open(after_s=20, jump_ns=2 * NS_PER_S).track.epoch
    assert (first, second) == (READING.epoch + 1, READING.epoch + 2)


def test_an_epoch_that_was_journaled_but_not_saved_is_not_given_out_again(node: Node) -> None:
    node.left()
    cause = Reason(ReasonCode.FOREIGN_ADJUSTER, "somebody")
    node.keeper().begin_epoch(READING.epoch + 1, LOOK, (cause,))
    track = node.open().track
    assert (track.state, track.epoch) == (ClockState.DISRUPTED, READING.epoch + 2)
    assert cause in track.reasons
    assert [one.epoch for one in node.journal()] == [READING.epoch + 1, READING.epoch + 2]


def test_another_boot_discards_the_reading(node: Node) -> None:
    node.left()
    node.boot_id = "boot-2"
    track = node.open().track
    assert track.state is ClockState.UNKNOWN
    (begun,) = node.journal()
    assert (begun.boot_id, begun.code) == ("boot-2", "STARTING")
    assert "boot-1" in begun.detail


def test_another_kind_of_source_starts_anew_above_the_old_epoch(node: Node) -> None:
    node.left(replace(SAVED, reading=replace(READING, epoch=10**6)))
    track = node.open(kind=SourceKind.KERNEL).track
    assert (track.state, track.kind, track.epoch) == (ClockState.UNKNOWN, SourceKind.KERNEL, 10**6 + 1)
    assert "derived from chrony, now the source is kernel" in node.journal()[-1].detail


@pytest.mark.parametrize("garbage", [b"", b"{", b"\x00" * 100, b"[]"])
def test_epochs_never_fall_within_a_boot_whatever_becomes_of_the_files(node: Node, garbage: bytes) -> None:
    node.left(replace(SAVED, reading=replace(READING, epoch=10**6)))
    epochs = [node.open().track.epoch]
    (node.run / LAST_READING).write_bytes(garbage)
    # The journal knows nothing: no epoch began since.
    epochs.append(node.open(after_s=2 * 10**6).track.epoch)
    (node.run / LAST_READING).write_bytes(garbage)
    epochs.append(node.open(after_s=2 * 10**6 + 1).track.epoch)
    (node.run / LAST_READING).unlink()
    (node.state / EPOCHS).unlink()
    epochs.append(node.open(after_s=2 * 10**6 + 3).track.epoch)
    assert epochs == sorted(set(epochs))


def test_what_a_cycle_keeps_is_what_the_next_start_takes_up(node: Node) -> None:
    keeper = node.keeper()
    opening = keeper.open(SourceKind.CHRONY, POLICY, None, lambda: host.Stamp(LOOK.boot_ns, LOOK.mono_ns, LOOK.wall_ns))
    node.left()
    track = replace(node.open(after_s=1).track, epoch=opening.track.epoch + 7)
    keeper.keep(reading_of(track, BOOT, POLICY), track, Look(LOOK.boot_ns + NS_PER_S, LOOK.mono_ns, LOOK.wall_ns), None)
    found = LastReadingFile(node.run / LAST_READING).load()
    assert isinstance(found, SavedReading)
    assert (found.reading.epoch, found.steering) == (opening.track.epoch + 7, None)


def test_epochs_of_earlier_boots_are_kept_and_the_newest_is_last(node: Node) -> None:
    node.state.mkdir()
    old = [Disruption(number, "boot-0", 1, 2, "SUSPENDED", "x") for number in range(1200)]
    (node.state / EPOCHS).write_bytes(b"".join(map(encode, old)))
    keeper = node.keeper()
    opening = keeper.open(SourceKind.CHRONY, POLICY, None)
    epochs = keeper.epochs()
    assert len(epochs) == 1000
    assert epochs[0] == old[201]
    assert epochs[-1].epoch == opening.track.epoch


def test_a_torn_journal_is_told_once_at_the_start(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.state.mkdir()
    (node.state / EPOCHS).write_bytes(b'{"epoch": 1')
    node.open()
    assert "journal of epochs: skipped line 1 (the last line, torn off)" in caplog.text


def test_folders_that_cannot_be_written_are_told_and_nothing_stops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    keeper = Keeper.of_folders(tmp_path / "absent", tmp_path / "file/state", BOOT)
    with caplog.at_level(logging.WARNING):
        opening = keeper.open(SourceKind.CHRONY, POLICY, None)
        for _ in range(5):
            keeper.keep(reading_of(opening.track, BOOT, POLICY), opening.track, opening.look, None)
    assert caplog.text.count("the last reading cannot be kept") == 1
    assert "file/state cannot be made" in caplog.text
    assert f"the disruption of epoch {opening.track.epoch} is not recorded" in caplog.text
    assert keeper.epochs()[-1].epoch == opening.track.epoch, "this process still tells it"


def test_an_old_reading_does_not_outlive_a_failure_to_replace_it(node: Node) -> None:
    node.left()
    keeper = node.keeper()
    opening = keeper.open(SourceKind.CHRONY, POLICY, None)
    # A folder in the place of the draft: the file cannot be replaced any more.
    (node.run / f".{LAST_READING}.new").mkdir()
    keeper.keep(reading_of(opening.track, BOOT, POLICY), opening.track, opening.look, None)
    assert not (node.run / LAST_READING).exists()


def test_several_causes_of_one_epoch_are_one_line(node: Node) -> None:
    causes = (Reason(ReasonCode.CLOCK_STEPPED, "set"), Reason(ReasonCode.SUSPENDED, "slept"))
    node.keeper().begin_epoch(9, LOOK, causes, 5 * NS_PER_MS)
    (begun,) = node.journal()
    assert (begun.code, begun.detail, begun.jump_ns) == ("CLOCK_STEPPED", "set; SUSPENDED: slept", 5 * NS_PER_MS)
