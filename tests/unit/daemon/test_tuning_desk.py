"""The desk on a fake node: plans that moved, applies that meet, drift that is told or set again, stop and start."""

import errno
import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from clockgated.config import TuningConfig
from clockgated.errors import ConfigError
from clockgated.tuning import desk
from clockgated.tuning.apply import Surroundings
from clockgated.tuning.claim import sole_apply
from clockgated.tuning.codec import plan_hash
from clockgated.tuning.desk import Outside, RefusalKind, Refused, Tools, TuningDesk
from clockgated.tuning.drift import DriftPolicy
from clockgated.tuning.interlock import ClockLook
from clockgated.tuning.journal import JournalError, Mark
from clockgated.tuning.journal_file import JournalFile
from clockgated.tuning.model import Change, Counter, Owner, OwnerKind, Plan, VerdictCode
from clockgated.tuning.outcome import Outcome, OutcomeCode
from clockgated.tuning.roots import Roots
from clockgated.tuning.verify import Eyes
from support.tuning import BOOT, MemoryHand, NoStamps, NotedGuard, change, sysctl

RMEM, IDLE = "net.ipv4.tcp_rmem", "net.ipv4.tcp_slow_start_after_idle"
SMALL, LARGE = "4096 131072 6291456", "4096 131072 67108864"


class Node:
    """A node in memory, a planner that wants large buffers, and a desk."""

    def __init__(self, folder: Path) -> None:
        self.hand = MemoryHand({sysctl(RMEM): SMALL, sysctl(IDLE): "1"})
        self.folder = folder / "tuning"
        self.root = folder
        self.policy = DriftPolicy()
        self.owner: Owner | None = None
        self.retransmits = 5
        self.lease: str | None = None
        self.desk = self.started()

    def started(self) -> TuningDesk:
        """A desk as another daemon would have it."""
        outside = Outside(lambda: self.lease, ClockLook)
        desk = TuningDesk(
            TuningConfig(), self.folder, survey=self.survey, make_tools=self._tools, outside=outside, boot_id=BOOT
        )
        desk.start()
        return desk

    def survey(self, profile: str | None, rtt_ms: float | None) -> Plan:
        wanted = {RMEM: LARGE, IDLE: "0"}
        if profile == "broken":
            raise ConfigError("no such profile")
        changes = tuple(
            replace(change(key, found, wanted[key]), evidence=(Counter("tcp.RetransSegs", self.retransmits),))
            for key in wanted
            if (found := self.hand.values.get(sysctl(key))) not in (None, wanted[key])
        )
        return Plan(plan_hash(0, changes), profile or "tcp", "asked", BOOT, 0, 0, changes)

    def apply(self) -> tuple[Outcome, ...]:
        outcomes = self.desk.apply(self.desk.plan(None, None).plan_hash, ignore_leases=False)
        assert not isinstance(outcomes, Refused)
        return outcomes

    def values(self) -> list[str]:
        return [self.hand.values[sysctl(key)] for key in (RMEM, IDLE)]

    def _tools(self, settings: TuningConfig, folder: Path, outside: Outside) -> Tools:
        around = Surroundings(
            NotedGuard(), NoStamps(), targets=tuple, reached=lambda targets, sizes: frozenset(),
            roots=Roots(self.root, self.root), lease_refusal=outside.lease_refusal,
        )  # fmt: skip
        eyes = Eyes(lambda knob, actual: self.owner, self._counters, lambda knob: self.policy)
        return Tools(self.hand, around, eyes, lambda: None)

    def _counters(self, names: Sequence[str]) -> tuple[Counter, ...]:
        return tuple(Counter(name, self.retransmits) for name in names)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def verdicts(node: Node) -> list[VerdictCode]:
    return [one.verdict.code for one in node.desk.verify()]


def refusal(found: object) -> RefusalKind:
    assert isinstance(found, Refused), found
    return found.kind


def test_a_plan_is_applied_verified_and_given_back(node: Node) -> None:
    assert [one.code for one in node.apply()] == [OutcomeCode.APPLIED] * 2
    assert verdicts(node) == [VerdictCode.CLEAN] * 2
    outcomes = node.desk.revert(ignore_leases=False)

    assert not isinstance(outcomes, Refused)
    assert [one.code for one in outcomes] == [OutcomeCode.REVERTED] * 2
    assert node.values() == [SMALL, "1"]
    assert node.desk.verify() == ()


def test_a_plan_that_was_never_made_is_refused(node: Node) -> None:
    assert refusal(node.desk.apply("0" * 64, ignore_leases=False)) is RefusalKind.UNKNOWN_PLAN


def test_a_plan_is_refused_when_the_node_has_moved(node: Node) -> None:
    asked = node.desk.plan(None, None).plan_hash
    node.hand.values[sysctl(RMEM)] = "4096 131072 33554432"

    assert refusal(node.desk.apply(asked, ignore_leases=False)) is RefusalKind.MOVED
    assert node.hand.writes == []


def test_a_plan_is_refused_when_its_link_or_key_is_gone(node: Node) -> None:
    asked = node.desk.plan(None, None).plan_hash
    del node.hand.values[sysctl(IDLE)]

    assert refusal(node.desk.apply(asked, ignore_leases=False)) is RefusalKind.MOVED


def test_one_apply_at_a_time_among_all_processes(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "_PATIENCE_S", 0.1)
    asked = node.desk.plan(None, None).plan_hash
    with sole_apply(node.folder):
        found = node.desk.apply(asked, ignore_leases=False)
        assert refusal(found) is RefusalKind.BUSY
        assert isinstance(found, Refused)
        assert str(os.getpid()) in found.why
        assert refusal(node.desk.revert(ignore_leases=False)) is RefusalKind.BUSY


def test_a_stop_keeps_everything_and_a_new_daemon_knows_it(node: Node) -> None:
    # openshift/cluster-node-tuning-operator 699: giving back at exit is an outage.
    node.apply()
    node.desk = node.started()

    assert node.values() == [LARGE, "0"]
    assert verdicts(node) == [VerdictCode.CLEAN] * 2


def test_an_unfinished_apply_is_undone_at_the_next_start(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    journal = JournalFile(node.folder, BOOT)
    with journal.locked():
        apply_id = journal.open("hash")
        journal.append(Mark.WRITE, apply_id, step=0, change=change(RMEM, SMALL, LARGE))
    node.hand.values[sysctl(RMEM)] = LARGE

    with caplog.at_level(logging.WARNING):
        node.started()

    assert node.values() == [SMALL, "1"]
    assert RMEM in caplog.text


def test_a_damaged_journal_stops_tuning_and_not_the_daemon(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.apply()
    file = node.folder / "journal"
    file.write_bytes(b"nonsense\n" + file.read_bytes())
    node.desk = node.started()

    assert "line 1" in caplog.text
    with pytest.raises(JournalError, match="line 1"):
        node.apply()
    assert node.values() == [LARGE, "0"]


def test_drift_is_told_once_with_key_values_and_writer(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.apply()
    node.hand.values[sysctl(IDLE)] = "1"

    with caplog.at_level(logging.WARNING):
        node.desk.watch()
        node.desk.watch()

    told = [one.getMessage() for one in caplog.records if IDLE in one.getMessage()]
    assert len(told) == 1
    assert '"1", which it was before' in told[0]
    assert "not known" in told[0]
    assert verdicts(node) == [VerdictCode.CLEAN, VerdictCode.DRIFT]
    owner = node.desk.verify()[1].verdict.owner
    assert owner is not None
    assert "unknown" in owner.place


def test_what_is_only_to_be_told_is_not_set_again(node: Node) -> None:
    node.apply()
    node.hand.values[sysctl(IDLE)] = "1"
    node.desk.watch()

    assert node.values() == [LARGE, "1"]


def test_two_writers_fight_for_two_rounds_and_no_longer(node: Node) -> None:
    node.apply()
    node.policy, node.owner = DriftPolicy(may_reassert=True, per_hour=10), Owner(OwnerKind.TUNED, "tuned profile x")
    for _ in range(2):
        node.hand.values[sysctl(IDLE)] = "1"
        node.desk.watch()
        assert node.values() == [LARGE, "0"]

    node.hand.values[sysctl(IDLE)] = "1"
    node.desk.watch()

    assert node.values() == [LARGE, "1"]
    checked = node.desk.verify()[1].verdict
    assert checked.code is VerdictCode.CONFLICT
    assert checked.owner == node.owner
    # A restart does not begin the fight anew: the rounds are in the journal.
    node.desk = node.started()
    node.desk.watch()
    assert node.values() == [LARGE, "1"]


def test_a_knob_that_was_set_again_is_still_given_back_as_it_was_first_found(node: Node) -> None:
    node.apply()
    node.policy = DriftPolicy(may_reassert=True)
    node.hand.values[sysctl(RMEM)] = "4096 131072 999999"
    node.desk.watch()
    assert node.values() == [LARGE, "0"]

    node.desk.revert(ignore_leases=False)

    assert node.values() == [SMALL, "1"]


def test_the_counters_of_the_plan_are_shown_again(node: Node) -> None:
    node.apply()
    node.retransmits = 17

    checked = node.desk.verify()[0]

    assert checked.evidence_before == (Counter("tcp.RetransSegs", 5),)
    assert checked.verdict.evidence == (Counter("tcp.RetransSegs", 17),)


def test_a_key_that_is_gone_is_unsupported_and_not_drift(node: Node) -> None:
    node.apply()
    del node.hand.values[sysctl(IDLE)]

    assert verdicts(node) == [VerdictCode.CLEAN, VerdictCode.UNSUPPORTED]


def test_a_revert_that_would_reset_a_link_waits_for_the_job_as_a_whole(node: Node, tmp_path: Path) -> None:
    journal = JournalFile(node.folder, BOOT)
    reset: Change = change(RMEM, SMALL, LARGE, resets_link=True)
    with journal.locked():
        apply_id = journal.open("hash")
        for step, one in enumerate((change(IDLE, "1", "0"), reset)):
            journal.append(Mark.WRITE, apply_id, step=step, change=one)
        journal.append(Mark.COMMIT, apply_id)
    node.hand.values |= {sysctl(RMEM): LARGE, sysctl(IDLE): "0"}
    node.lease = "lease 1 forbids a step"

    outcomes = node.desk.revert(ignore_leases=False)
    assert not isinstance(outcomes, Refused)
    assert [one.code for one in outcomes] == [OutcomeCode.DEFERRED] * 2
    assert node.values() == [LARGE, "0"]

    node.desk.revert(ignore_leases=True)
    assert node.values() == [SMALL, "1"]


def test_a_profile_that_is_gone_since_the_plan_is_a_move(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = node.desk.plan("tcp", None).plan_hash
    monkeypatch.setattr(node.desk, "_survey", lambda profile, rtt: node.survey("broken", rtt))

    assert refusal(node.desk.apply(asked, ignore_leases=False)) is RefusalKind.MOVED


def test_a_full_disk_keeps_nobody_from_giving_back(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.apply()

    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    node.desk = node.started()
    assert node.desk.watch()
    outcomes = node.desk.revert(ignore_leases=False)

    assert not isinstance(outcomes, Refused)
    assert [one.code for one in outcomes] == [OutcomeCode.REVERTED] * 2


def test_what_is_being_given_back_at_this_moment_is_not_told_as_a_mistake(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.apply()
    journal = JournalFile(node.folder, BOOT)
    with journal.locked():
        journal.read()
        journal.append(Mark.UNDO_ALL, 0, detail="the operator asked")

    with sole_apply(node.folder):
        node.desk.watch()
    assert "not given back yet" not in caplog.text
    node.desk.watch()
    assert "not given back yet (the operator asked)" in caplog.text


def test_an_apply_that_was_not_finished_is_named_without_a_reason_that_nobody_knows(node: Node) -> None:
    asked = node.desk.plan(None, None).plan_hash
    journal = JournalFile(node.folder, BOOT)
    with journal.locked():
        journal.open("hash")

    found = node.desk.apply(asked, ignore_leases=False)

    assert isinstance(found, Refused)
    assert "not given back yet; run" in found.why


def test_the_plans_of_others_do_not_push_out_the_one_that_is_to_be_applied(node: Node) -> None:
    asked = node.desk.plan(None, None).plan_hash
    for buffer_bytes in range(200):
        node.hand.values[sysctl(RMEM)] = f"4096 131072 {7_000_000 + buffer_bytes}"
        node.desk.plan("tcp", 100.0)
    node.hand.values[sysctl(RMEM)] = SMALL

    assert not isinstance(node.desk.apply(asked, ignore_leases=False), Refused)


def test_what_another_process_was_busy_with_at_the_start_is_undone_once_it_is_done(node: Node) -> None:
    journal = JournalFile(node.folder, BOOT)
    with journal.locked():
        apply_id = journal.open("hash")
        journal.append(Mark.WRITE, apply_id, step=0, change=change(RMEM, SMALL, LARGE))
    node.hand.values[sysctl(RMEM)] = LARGE
    with sole_apply(node.folder):
        node.desk = node.started()
        node.desk.watch()
        assert node.values() == [LARGE, "1"], "it may be writing at this moment"

    node.desk.watch()

    assert node.values() == [SMALL, "1"]
    assert node.desk.verify() == ()


def test_an_apply_that_is_not_confirmed_does_not_read_as_nothing_applied(node: Node) -> None:
    journal = JournalFile(node.folder, BOOT)
    with journal.locked():
        apply_id = journal.open("hash")
        journal.append(Mark.WRITE, apply_id, step=0, change=change(RMEM, SMALL, LARGE))

    (found,) = node.desk.verify()

    assert found.verdict.code is VerdictCode.ERROR
    assert found.verdict.detail.startswith("not confirmed: it is being applied at this moment")


def test_a_hash_that_is_none_is_told_without_what_moves_a_cursor(node: Node) -> None:
    found = node.desk.apply("\x1b[2J\n\u202e" + 100 * "x", ignore_leases=False)
    assert isinstance(found, Refused)
    assert found.why.startswith(r'no plan "\u001b[2J\n\u202e')
    assert found.why.isprintable()
    assert len(found.why) < 200
