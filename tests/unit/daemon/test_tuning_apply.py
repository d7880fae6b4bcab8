"""One apply on fakes: what waits, what is proven, what is given back, and in which order the guard is armed."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import pytest
from clockgated.tuning.apply import Surroundings, carry_out
from clockgated.tuning.confirm import Target
from clockgated.tuning.interlock import ClockLook
from clockgated.tuning.journal import JournalError, LinkStamps, Mark, Stage
from clockgated.tuning.journal_file import JournalFile
from clockgated.tuning.model import Area, Change, Knob, LinkId
from clockgated.tuning.outcome import Outcome, OutcomeCode, Trouble, TroubleCode
from clockgated.tuning.roots import Roots
from clockgated.tuning.transaction import recover
from support.tuning import BOOT, MemoryHand, NoStamps, NotedGuard, change

LINK = LinkId("eth0", 2, "02:00:00:00:00:01", "mlx5_core")
BUFFER = change("net.ipv4.tcp_rmem", "4096 131072 6291456", "4096 131072 67108864")
MTU = change(Knob(0, Area.MTU, "mtu", LINK), "1500", "9000", needs_confirm=True)
RINGS = change(Knob(0, Area.RINGS, "rx", LINK), "1024", "2048", needs_confirm=True, resets_link=True)
GATEWAY = Target("gateway 192.0.2.1", "192.0.2.1", ifindex=2)


class Node:
    """A node in memory: everything answers unless `answers` says otherwise."""

    def __init__(self, folder: Path, *changes: Change, **around: Any) -> None:
        self.changes = changes
        self.guard = NotedGuard()
        self.hand = MemoryHand({one.knob: one.found for one in changes}, self._stored)
        self.journal = JournalFile(folder / "tuning", BOOT)
        self.on_write: Callable[[Knob, str], str | Trouble] | None = None
        self.answers: Callable[[AbstractSet[int]], bool] = lambda _: True
        self.full_sizes: list[AbstractSet[int]] = []
        wanted = {
            "stamps": NoStamps(), "targets": lambda: (GATEWAY,), "reached": self._reached,
            "roots": Roots(folder, folder), "confirm_s": 6.0, "settle_s": 0.0, **around,
        }  # fmt: skip
        self.around = Surroundings(guard=self.guard, **wanted)

    def apply(self, *, ignore_leases: bool = False) -> tuple[Outcome, ...]:
        return carry_out(
            self.journal, self.hand, self.changes, self.around, plan_hash="hash", ignore_leases=ignore_leases
        )

    def values(self) -> list[str]:
        return [self.hand.values[one.knob] for one in self.changes]

    def _stored(self, knob: Knob, value: str) -> str | Trouble:
        return value if self.on_write is None else self.on_write(knob, value)

    def _reached(self, targets: Sequence[Target], full_size: AbstractSet[int]) -> AbstractSet[str]:
        self.full_sizes.append(full_size)
        return {one.name for one in targets} if self.answers(full_size) else frozenset()


def codes(outcomes: Sequence[Outcome]) -> list[OutcomeCode]:
    return [one.code for one in outcomes]


def test_what_cannot_cut_the_node_off_needs_no_guard(tmp_path: Path) -> None:
    node = Node(tmp_path, BUFFER)

    assert codes(node.apply()) == [OutcomeCode.APPLIED]
    assert node.guard.calls == []
    assert node.journal.read()[0].stage is Stage.COMMITTED


def test_what_may_cut_the_node_off_is_guarded_before_it_is_done_and_confirmed_after(tmp_path: Path) -> None:
    node = Node(tmp_path, BUFFER, MTU)
    armed_when_written: list[bool] = []

    def on_write(knob: Knob, value: str) -> str:
        if knob == MTU.knob:
            armed_when_written.append(node.guard.calls == ["arm"])
        return value

    node.on_write = on_write

    assert codes(node.apply()) == [OutcomeCode.APPLIED] * 2
    assert armed_when_written == [True]
    assert node.guard.calls == ["arm", "disarm"]
    # The path has to carry packets as large as the new MTU, not only small ones.
    assert node.full_sizes[0] == frozenset()
    assert node.full_sizes[-1] == {2}


def test_without_a_guard_nothing_is_done(tmp_path: Path) -> None:
    node = Node(tmp_path, BUFFER, MTU)
    node.guard.complaint = "systemd-run: Failed to connect to bus"

    outcomes = node.apply()

    assert codes(outcomes) == [OutcomeCode.REVERTED] * 2
    assert "Failed to connect to bus" in outcomes[0].detail
    assert node.hand.writes == []


def test_a_node_that_is_not_reached_any_more_gets_everything_back(tmp_path: Path) -> None:
    node = Node(tmp_path, BUFFER, MTU)
    node.answers = lambda _: node.hand.values[MTU.knob] == "1500"

    outcomes = node.apply()

    assert codes(outcomes) == [OutcomeCode.REVERTED] * 2
    assert "gateway 192.0.2.1 is not reached" in outcomes[0].detail
    assert node.values() == [BUFFER.found, "1500"]
    assert not node.journal.path.exists()


def test_small_packets_alone_prove_nothing_about_a_larger_mtu(tmp_path: Path) -> None:
    # NVIDIA/nccl 1524: unequal MTU passes small messages and swallows large ones.
    node = Node(tmp_path, MTU)
    node.answers = lambda full_size: not full_size

    assert codes(node.apply()) == [OutcomeCode.REVERTED]


def test_where_nothing_answers_what_may_cut_the_node_off_waits_and_the_rest_is_done(tmp_path: Path) -> None:
    node = Node(tmp_path, BUFFER, MTU, targets=lambda: ())

    outcomes = node.apply()

    assert codes(outcomes) == [OutcomeCode.APPLIED, OutcomeCode.DEFERRED]
    assert "probe_hosts" in outcomes[1].detail
    assert node.guard.calls == []


def test_a_lease_keeps_links_from_being_reset_and_nothing_else(tmp_path: Path) -> None:
    node = Node(tmp_path, BUFFER, RINGS, lease_refusal=lambda: "lease 1 forbids a step")

    outcomes = node.apply()

    assert codes(outcomes) == [OutcomeCode.APPLIED, OutcomeCode.DEFERRED]
    assert "lease 1" in outcomes[1].detail
    assert node.values() == [BUFFER.wanted, "1024"]


def test_an_operator_may_ignore_leases(tmp_path: Path) -> None:
    node = Node(tmp_path, RINGS, lease_refusal=lambda: "lease 1 forbids a step")

    assert codes(node.apply(ignore_leases=True)) == [OutcomeCode.APPLIED]


def test_a_job_that_begins_in_the_middle_stops_the_apply(tmp_path: Path) -> None:
    node: Node = Node(tmp_path, BUFFER, RINGS, lease_refusal=lambda: "lease 1" if node.hand.writes else None)

    outcomes = node.apply()

    assert codes(outcomes) == [OutcomeCode.REVERTED] * 2
    assert node.values() == [BUFFER.found, "1024"]
    assert all(knob != RINGS.knob for knob, _ in node.hand.writes)


def test_a_clock_that_rests_on_ptp_alone_keeps_links_from_being_reset(tmp_path: Path) -> None:
    node = Node(tmp_path, RINGS, clock=lambda: ClockLook(0, is_ptp_locked=True))

    assert codes(node.apply(ignore_leases=True)) == [OutcomeCode.DEFERRED]


def test_a_ptp_that_does_not_lock_again_gets_everything_back(tmp_path: Path) -> None:
    def clock() -> ClockLook:
        is_reset = node.hand.values[RINGS.knob] != "1024"
        return ClockLook(1 << 62, is_ptp_locked=not is_reset, is_protected=True)

    node: Node = Node(tmp_path, RINGS, clock=clock)

    outcomes = node.apply()

    assert codes(outcomes) == [OutcomeCode.REVERTED]
    assert "PTP is not locked again" in outcomes[0].detail


@pytest.mark.parametrize("trouble", [TroubleCode.READ_ONLY, TroubleCode.UNSUPPORTED, TroubleCode.FAILED])
def test_a_refused_change_gives_back_what_was_done_before_it(tmp_path: Path, trouble: TroubleCode) -> None:
    node = Node(tmp_path, BUFFER, RINGS)
    node.on_write = lambda knob, value: Trouble(trouble, "refused") if knob == RINGS.knob else value

    outcomes = node.apply()

    assert codes(outcomes) == [OutcomeCode.REVERTED] * 2
    assert "refused" in outcomes[0].detail
    assert node.values() == [BUFFER.found, "1024"]
    assert node.guard.calls == ["arm", "disarm"]


def test_what_cannot_be_given_back_now_is_left_to_the_guard(tmp_path: Path) -> None:
    node = Node(tmp_path, RINGS)
    node.answers = lambda _: node.hand.values[RINGS.knob] == "1024"
    node.on_write = lambda knob, value: Trouble(TroubleCode.FAILED, "busy") if value == "1024" else value

    outcomes = node.apply()

    assert codes(outcomes) == [OutcomeCode.FAILED]
    assert node.guard.calls == ["arm"]
    assert node.journal.read()[0].stage is Stage.UNDOING


def test_nonsense_is_found_before_anything_is_written(tmp_path: Path) -> None:
    node = Node(tmp_path, BUFFER, change("net.ipv4.tcp_mtu_probing", "0", "9"))

    outcomes = node.apply()

    assert codes(outcomes) == [OutcomeCode.REVERTED] * 2
    assert "tcp_mtu_probing" in outcomes[0].detail
    assert node.hand.writes == []


def test_an_apply_that_the_guard_took_over_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path, MTU)

    def on_write(knob: Knob, value: str) -> str:
        if value == "9000":
            # As when this process stood still from here until after the guard's time.
            guards = JournalFile(tmp_path / "tuning", BOOT)
            apply_id = guards.read()[0].apply_id
            guards.append(Mark.UNDO, apply_id)
        return value

    node.on_write = on_write
    outcomes = node.apply()

    assert codes(outcomes) == [OutcomeCode.REVERTED]
    assert "guard" in outcomes[0].detail
    assert node.values() == ["1500"]


def test_how_the_link_stamps_packets_is_read_before_and_restored_after(tmp_path: Path) -> None:
    class Noted(NoStamps):
        def __init__(self) -> None:
            self.calls: list[str] = []

        def read(self, links: Any) -> tuple[LinkStamps, ...]:
            self.calls.append("read")
            return tuple(LinkStamps(link, 1, 12) for link in dict.fromkeys(links))

        def restore(self, before: Sequence[LinkStamps]) -> None:
            self.calls.append(f"restore {before[0].tx_type} {before[0].rx_filter}")

    noted = Noted()
    node = Node(tmp_path, RINGS, MTU, stamps=noted)
    node.on_write = lambda knob, value: noted.calls.append(f"write {knob.area}") or value  # type: ignore[func-returns-value]

    node.apply()

    assert noted.calls == ["read", "write rings", "write mtu", "restore 1 12"]
    # On disk with the beginning, so that a recovery after a crash restores it as well.
    assert node.journal.read()[0].stamps == (LinkStamps(LINK, 1, 12),)


def test_a_disk_that_fills_up_in_the_middle_gives_everything_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, BUFFER, RINGS)
    real = JournalFile.append

    def append(journal: JournalFile, mark: Mark, apply_id: int, **fields: Any) -> None:
        if node.hand.writes:
            raise JournalError("journal: cannot be written: No space left on device")
        real(journal, mark, apply_id, **fields)

    monkeypatch.setattr(JournalFile, "append", append)
    outcomes = node.apply()

    assert codes(outcomes) == [OutcomeCode.REVERTED] * 2
    assert "No space left" in outcomes[0].detail
    assert node.values() == [BUFFER.found, "1024"]
    # What is left of the journal changes nothing when the next start reads it.
    monkeypatch.undo()
    recover(JournalFile(tmp_path / "tuning", BOOT), node.hand, NoStamps(), BOOT)
    assert node.values() == [BUFFER.found, "1024"]
    assert not node.journal.path.exists()


def test_a_plan_without_changes_leaves_no_journal(tmp_path: Path) -> None:
    node = Node(tmp_path)

    assert node.apply() == ()
    assert not node.journal.path.exists()
