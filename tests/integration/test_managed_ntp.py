"""clockgated in mode ntp: it runs its own chronyd beside a real server, through everything that happens to either.

Nobody may set a clock here: clockgated and all that it starts lack CAP_SYS_TIME, and say so.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.chrony import Chronyd, chronyd
from support.daemon import command
from support.managed import FREE_RUNNING, HOLDOVER, SYNCHRONIZED, Node, codes, environment_with_tools, node
from support.tools import require_tool
from support.veth import Namespace, namespaces

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

MS = 1_000_000
CAP_SYS_TIME = 25
NTP = '[ntp]\nservers = [{ host = "10.77.0.1", min_poll_log2 = -2, max_poll_log2 = -2 }]'
OTHER_NTP = NTP.replace("max_poll_log2 = -2", "max_poll_log2 = -1")


@pytest.fixture(scope="module")
def ends() -> Iterator[tuple[Namespace, Namespace]]:
    with namespaces() as pair:
        yield pair


@pytest.fixture
def server(ends: tuple[Namespace, Namespace]) -> Iterator[Chronyd]:
    # Alone it is its own reference, at once.
    lines = ["local stratum 3", "allow 10.77.0.0/24", "bindaddress 10.77.0.1"]
    with (
        tempfile.TemporaryDirectory() as folder,
        chronyd(Path(folder) / "server", tuple(ends[0].command()), lines) as running,
    ):
        yield running


@pytest.fixture
def here(ends: tuple[Namespace, Namespace]) -> Iterator[Node]:
    with node(ends[1]) as made:
        made.configure("ntp", extra=NTP)
        yield made


def test_start_to_synchronized_and_the_bound(server: Chronyd, here: Node) -> None:
    here.start()
    reading = here.wait_for_state(SYNCHRONIZED)
    elapsed_s = time.monotonic() - here.started_mono_s
    tight = here.wait_for("bound below 1 ms", lambda reading: 0 < reading.relative_bound_ns < MS)
    print(f"\nmode ntp: SYNCHRONIZED after {elapsed_s:.1f} s, bound {tight.relative_bound_ns / 1000:.0f} us")
    assert reading.reference.identity == "ntp:10.77.0.1"
    assert abs(tight.offset_ns) <= tight.relative_bound_ns
    assert "NOT_STEERED" in codes(reading)
    assert any("nobody steers this clock" in assumption for assumption in reading.assumptions)
    assert not effective_capabilities(here.wait_for_pid("chronyd")) >> CAP_SYS_TIME & 1


def test_a_killed_chronyd_comes_back_in_the_same_epoch(server: Chronyd, here: Node) -> None:
    here.start()
    before = here.wait_for_state(SYNCHRONIZED)
    pid = here.wait_for_pid("chronyd")
    os.kill(pid, signal.SIGKILL)
    down = here.wait_for_state(HOLDOVER)
    assert "TIME_DAEMON_DOWN" in codes(down) | codes(here.wait_for("reason", lambda r: "TIME_DAEMON_DOWN" in codes(r)))
    back = here.wait_for_state(SYNCHRONIZED)
    assert back.epoch == before.epoch
    assert here.wait_for_pid("chronyd") != pid
    assert "TIME_DAEMON_DOWN" not in codes(back)


def test_a_stopped_chronyd_is_killed_and_started_again(server: Chronyd, here: Node) -> None:
    here.start()
    before = here.wait_for_state(SYNCHRONIZED)
    pid = here.wait_for_pid("chronyd")
    os.kill(pid, signal.SIGSTOP)
    here.wait_for_state(HOLDOVER)
    here.wait_for_pid("chronyd", other_than=pid)
    back = here.wait_for_state(SYNCHRONIZED)
    assert back.epoch == before.epoch
    assert "taken for hung and killed" in here.log


def test_a_lost_server_is_holdover_with_a_growing_bound_and_then_free_running(server: Chronyd, here: Node) -> None:
    here.configure("ntp", clock="holdover_horizon_s = 4", extra=NTP)
    here.start()
    before = here.wait_for_state(SYNCHRONIZED)
    server.kill()
    held = here.wait_for_state(HOLDOVER)
    later = here.wait_for("later reading", lambda reading: reading.sequence >= held.sequence + 3)
    assert later.state == HOLDOVER
    assert later.relative_bound_ns > held.relative_bound_ns > 0
    free = here.wait_for_state(FREE_RUNNING)
    assert "HOLDOVER_HORIZON" in codes(free)
    assert free.relative_bound_ns > later.relative_bound_ns
    assert free.epoch == before.epoch


def test_a_killed_clockgated_adopts_its_chronyd_and_goes_on(server: Chronyd, here: Node) -> None:
    here.start()
    before = here.wait_for_state(SYNCHRONIZED)
    pid = here.wait_for_pid("chronyd")
    here.kill()
    assert here.wait_for_pid("chronyd") == pid
    here.start()
    after = here.wait_for_state(SYNCHRONIZED)
    assert here.wait_for_pid("chronyd") == pid
    assert after.epoch == before.epoch
    assert "OTHER_TIME_DAEMON" not in codes(after)


def test_a_leftover_of_another_configuration_is_ended_before_the_next_starts(server: Chronyd, here: Node) -> None:
    here.start()
    pid = here.wait_for_pid("chronyd")
    here.kill()
    here.configure("ntp", extra=OTHER_NTP)
    here.start()
    here.wait_for_pid("chronyd", other_than=pid)
    here.wait_for_state(SYNCHRONIZED)
    here.kill()
    here.configure("observe")
    here.start()
    due = time.monotonic() + 15
    while here.machine.pids("chronyd"):
        assert time.monotonic() < due, here.log
        time.sleep(0.1)


def test_reload_leaves_an_unchanged_chronyd_alone_and_replaces_a_changed_one(server: Chronyd, here: Node) -> None:
    here.start()
    before = here.wait_for_state(SYNCHRONIZED)
    pid = here.wait_for_pid("chronyd")
    here.configure("ntp", clock="max_bound_ms = 40", extra=NTP)
    here.reload()
    wait_for_log(here, "reload: done")
    after = here.wait_for("later reading", lambda reading: reading.sequence > before.sequence + 3)
    assert (after.state, after.epoch) == (SYNCHRONIZED, before.epoch)
    assert here.wait_for_pid("chronyd") == pid

    here.configure("ntp", clock="max_bound_ms = 40", extra=OTHER_NTP)
    here.reload()
    here.wait_for_pid("chronyd", other_than=pid)
    assert here.wait_for_state(SYNCHRONIZED).epoch == before.epoch

    here.configure("observe")
    here.reload()
    due = time.monotonic() + 15
    while here.machine.pids("chronyd"):
        assert time.monotonic() < due, here.log
        time.sleep(0.1)


def test_stop_takes_the_children_along_within_two_seconds(server: Chronyd, here: Node) -> None:
    here.start()
    here.wait_for_state(SYNCHRONIZED)
    # Also one that does not react by itself.
    os.kill(here.wait_for_pid("chronyd"), signal.SIGSTOP)
    assert here.stop() < 2
    assert here.machine.pids("chronyd") == []


def test_a_chronyd_that_ends_at_once_is_a_crash_loop_in_the_api(here: Node) -> None:
    version = subprocess.run([require_tool("chronyd"), "-v"], capture_output=True, text=True, check=True).stdout
    fake = here.folder / "bin/chronyd"
    fake.parent.mkdir()
    fake.write_text(
        f"#!/bin/sh\n[ \"$1\" = -v ] && echo '{version.strip()}' && exit\necho 'Fatal error' >&2\nexit 255\n"
    )
    fake.chmod(0o755)
    here.start(path=fake.parent)
    down = here.wait_for("reason", lambda reading: "TIME_DAEMON_DOWN" in codes(reading), 20)
    assert "exit status 255" in next(one.detail for one in down.reasons if "exit status" in one.detail)
    here.wait_for("crash loop", lambda reading: "TIME_DAEMON_CRASH_LOOP" in codes(reading), 40)
    assert here.stop() < 2


def test_another_time_daemon_is_named_and_not_disturbed_until_it_ends(server: Chronyd, here: Node) -> None:
    # ptp4l steers a hardware clock by its device, so no lack of rights clears it; this one only stands there.
    words = ("-S", "-m", "-i", "eth1", f"--uds_address={here.folder / 'stray'}", "--free_running=1")
    log = here.folder / "stray.log"
    stray = here.machine.start(require_tool("ptp4l"), *words, env=environment_with_tools(), log=log)
    here.start()
    reading = here.wait_for("reason", lambda reading: "OTHER_TIME_DAEMON" in codes(reading))
    (told,) = (one.detail for one in reading.reasons if "ptp4l" in one.detail)
    assert "set take_over = true, or stop it" in told
    assert here.machine.pids("chronyd") == []
    assert stray.is_alive()
    stray.send(signal.SIGKILL)
    here.wait_for_state(SYNCHRONIZED)


def test_a_chronyd_that_cannot_be_asked_is_not_killed_for_that(server: Chronyd, here: Node) -> None:
    # It talks, and answers nobody that this chronyc would hear.
    here.configure("ntp", extra=NTP, chrony='chronyc = "/bin/false"')
    here.start()
    pid = here.wait_for_pid("chronyd")
    here.wait_for("reason", lambda reading: "SOURCE_UNREACHABLE" in codes(reading))
    time.sleep(12)
    assert here.wait_for_pid("chronyd") == pid


def test_print_plan_changes_nothing(here: Node) -> None:
    words = command("--config", here.folder / "clockgated.toml", "--print-plan")
    for more, check in ((), lambda text: text.startswith("mode: ntp\n")), (("--json",), json.loads):
        shown = subprocess.run(
            here.machine.command(*words, *more), env=environment_with_tools(),
            capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        assert shown.returncode == 0, shown.stderr
        assert check(shown.stdout)
    assert [path.name for path in here.folder.iterdir()] == ["clockgated.toml"]
    assert here.machine.pids("chronyd") == []


def wait_for_log(here: Node, text: str) -> None:
    due = time.monotonic() + 15
    while text not in here.log:
        assert time.monotonic() < due, here.log
        time.sleep(0.05)


def effective_capabilities(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("CapEff:")[2].split()[0], 16)
