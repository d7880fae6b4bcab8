"""The process outside the daemon that gives back what nobody confirmed; the transient timer on a fake systemd."""

import time
from pathlib import Path

import pytest
from clockgated.tuning.file_hand import FileHand
from clockgated.tuning.guard import ProcessGuard, SystemdGuard, host_guard
from clockgated.tuning.journal import Mark
from clockgated.tuning.journal_file import JournalFile
from clockgated.tuning.roots import Roots
from clockgated.tuning.transaction import make
from clockgated.tuning.undo_later import main
from support.tuning import BOOT, change, put

KEY = "net.ipv4.tcp_mtu_probing"


class Node:
    """A fake tree with one change that is made and not confirmed."""

    def __init__(self, folder: Path) -> None:
        self.roots = Roots(folder / "proc", folder / "sys", folder)
        self.state = folder / "state"
        self.file = put(folder, KEY, "0")
        put(folder, "kernel.random.boot_id", BOOT)
        self.journal = JournalFile(self.state, BOOT)
        with self.journal.locked():
            self.apply_id = self.journal.open("hash")

    def make(self) -> None:
        changes = (change(KEY, "0", "1"),)
        assert make(self.journal, FileHand(self.roots), self.apply_id, changes, lambda _: None) is None

    def confirm(self) -> None:
        with self.journal.locked():
            self.journal.append(Mark.COMMIT, self.apply_id)

    def value(self) -> str:
        return self.file.read_text().strip()

    def undo_now(self, *words: str) -> int:
        paths = (f"--folder={self.state}", f"--proc={self.roots.proc}", f"--sys={self.roots.sys}")
        return main([*paths, f"--apply={self.apply_id}", f"--boot-id={BOOT}", *words])


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_process_of_its_own_gives_back_what_nobody_confirmed(node: Node) -> None:
    guard = ProcessGuard(node.state, node.roots)
    assert guard.arm(node.apply_id, 0.5) is None
    node.make()
    assert node.value() == "1"

    due = time.monotonic() + 30
    while node.value() != "0" and time.monotonic() < due:
        time.sleep(0.05)
    assert node.value() == "0"
    guard.disarm()


def test_a_disarmed_guard_does_nothing(node: Node) -> None:
    guard = ProcessGuard(node.state, node.roots)
    assert guard.arm(node.apply_id, 0.2) is None
    node.make()
    guard.disarm()
    time.sleep(0.5)

    assert node.value() == "1"


def test_a_guard_that_comes_late_leaves_what_is_confirmed(node: Node) -> None:
    node.make()
    node.confirm()

    assert node.undo_now() == 0
    assert node.value() == "1"


def test_a_guard_of_an_earlier_apply_leaves_a_later_one(node: Node) -> None:
    node.make()
    node.apply_id -= 1

    assert node.undo_now() == 0
    assert node.value() == "1"


def test_a_guard_leaves_what_somebody_else_changed(node: Node) -> None:
    node.make()
    node.file.write_text("2\n")

    assert node.undo_now() == 0
    assert node.value() == "2"


def test_a_damaged_journal_is_told_and_touches_nothing(node: Node) -> None:
    node.make()
    node.journal.path.write_bytes(b"x\n" + node.journal.path.read_bytes())

    assert node.undo_now() == 1
    assert node.value() == "1"


def test_a_guard_for_a_process_that_stands_still_does_not_wait_for_ever(node: Node) -> None:
    node.make()
    with node.journal.locked():
        began = time.monotonic()
        assert node.undo_now() == 0
    assert node.value() == "0"
    assert time.monotonic() - began < 20


def fake_systemd(folder: Path, exit_code: int = 0) -> tuple[str, Path]:
    """A program that notes how it was called in the place of systemd-run and systemctl."""
    program, notes = folder / "systemd", folder / "called"
    program.write_text(f'#!/bin/sh\necho "$@" >> {notes}\necho denied >&2\nexit {exit_code}\n')
    program.chmod(0o755)
    return str(program), notes


def test_where_systemd_runs_a_transient_timer_is_the_guard(node: Node, tmp_path: Path) -> None:
    program, notes = fake_systemd(tmp_path)
    guard = SystemdGuard(node.state, node.roots, (program,))

    assert guard.arm(node.apply_id, 60) is None
    guard.disarm()

    armed, disarmed = notes.read_text().splitlines()
    assert armed.startswith("systemd-run ")
    assert "--on-active=60s" in armed
    assert f"clockgated.tuning.undo_later --folder={node.state} --apply={node.apply_id} --after=0" in armed
    assert disarmed == f"systemctl --no-ask-password stop clockgate-tuning-undo-{node.apply_id}.timer"


def test_a_timer_that_systemd_refuses_is_told(node: Node, tmp_path: Path) -> None:
    program, _ = fake_systemd(tmp_path, exit_code=1)

    complaint = SystemdGuard(node.state, node.roots, (program,)).arm(node.apply_id, 60)

    assert complaint is not None
    assert "denied" in complaint


def test_the_guard_is_chosen_by_what_runs_here(tmp_path: Path) -> None:
    for pid, inode_of in (("self", "a"), ("1", "a")):
        folder = tmp_path / "proc" / pid / "ns"
        folder.mkdir(parents=True)
        source = tmp_path / inode_of
        source.touch()
        (folder / "net").symlink_to(source)
    roots = Roots(tmp_path / "proc", tmp_path / "sys", tmp_path)
    assert isinstance(host_guard(tmp_path, roots), ProcessGuard)

    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert isinstance(host_guard(tmp_path, roots), SystemdGuard)

    # A timer would run in the namespace of systemd, not in ours.
    (tmp_path / "b").touch()
    (tmp_path / "proc/1/ns/net").unlink()
    (tmp_path / "proc/1/ns/net").symlink_to(tmp_path / "b")
    assert isinstance(host_guard(tmp_path, roots), ProcessGuard)


def test_nothing_is_given_back_twice(node: Node) -> None:
    node.make()
    assert node.undo_now() == 0
    node.file.write_text("1\n")

    assert node.undo_now() == 0
    assert node.value() == "1"
