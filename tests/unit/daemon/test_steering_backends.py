import fcntl
import os
from pathlib import Path

import pytest
from clockgated.manage.plan import make_plan
from clockgated.manage.planned import Folders, Plan
from clockgated.manage.settings import Mode
from clockgated.steering.backends import children_folder, own_pids, runs_units
from clockgated.supervise.base import ChildSpec
from clockgated.supervise.ledger import Ledger, Record
from clockgated.supervise.process import identity_of
from support.plan_hosts import FOLDERS, NTP_CLIENT, PTP_SOFTWARE, host
from support.programs import program, supervising, wait_for_one

NTP = make_plan(NTP_CLIENT, host(), FOLDERS)
PTP = make_plan(PTP_SOFTWARE, host(), FOLDERS)


class Root:
    """A made-up host, as far as it tells whether systemd runs there and which units are installed."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.run, self.units = folder / "proc", folder / "run", folder / "units"
        (self.proc / "1").mkdir(parents=True)
        (self.run / "systemd/system").mkdir(parents=True)
        self.units.mkdir()
        self.first("systemd")

    def first(self, program: str) -> None:
        (self.proc / "1/comm").write_text(f"{program}\n")

    def install(self, *names: str) -> None:
        for name in names:
            (self.units / name).touch()

    def runs(self, plan: Plan) -> bool:
        return runs_units(plan, self.proc, self.run, (self.units,))


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def test_units_are_used_where_systemd_is_first_and_they_are_installed(root: Root) -> None:
    root.install("clockgate-chronyd.service", "clockgate-ptp4l@.service")
    assert root.runs(NTP)
    assert root.runs(PTP), "an instance is made of its template"


def test_a_unit_that_is_not_installed_leaves_the_programs_to_us(root: Root) -> None:
    root.install("clockgate-chronyd.service")
    assert not root.runs(PTP)


def test_a_container_that_shares_run_with_its_host_has_no_systemd(root: Root) -> None:
    root.install("clockgate-chronyd.service")
    root.first("sleep")
    assert not root.runs(NTP)


def test_without_the_folder_of_systemd_there_is_none(root: Root) -> None:
    root.install("clockgate-chronyd.service")
    (root.run / "systemd/system").rmdir()
    assert not root.runs(NTP)
    (root.proc / "1/comm").unlink()
    assert not root.runs(Plan(Mode.OBSERVE, ()))


def test_recorded_children_that_live_are_ours(tmp_path: Path) -> None:
    folder = children_folder(Folders(str(tmp_path), str(tmp_path)))
    assert own_pids(folder) == frozenset(), "no folder, no children"
    ledger, parent = Ledger(folder), identity_of(os.getppid())
    assert parent is not None
    ledger.record(Record("chronyd", "boot", parent.pid, parent.start_ticks, "digest"))
    ledger.record(Record("ptp4l@eth0", "boot", parent.pid, parent.start_ticks + 1, "digest"))
    (folder / "damaged.json").write_text("?")
    assert own_pids(folder) == {parent.pid}
    assert (folder / "damaged.json").exists(), "looking changes nothing"


def test_a_child_that_was_never_recorded_is_ours_by_its_lock(tmp_path: Path) -> None:
    folder = tmp_path / "children"
    sleeper = program(tmp_path, "sleeper", "exec sleep 601")
    owner = supervising(folder, ChildSpec("sleeper", (str(sleeper),)), "after fork")
    owner.wait(30)
    pid = wait_for_one("601")
    assert own_pids(folder) == {pid}
    os.kill(pid, 9)


def test_our_own_lock_is_no_child(tmp_path: Path) -> None:
    with (tmp_path / "x.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert own_pids(tmp_path) == frozenset()
