"""A real daemon tunes a network namespace: apply, verify, drift, revert, crashes, and what forbids it."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from clockgate.v1 import gate_pb2, gate_pb2_grpc, tuning_pb2, tuning_pb2_grpc
from support.daemon import command, environment
from support.tuning_node import TunedNode, differences, python_in, snapshot, tuned_node
from support.veth import Namespace, namespaces

pytestmark = pytest.mark.integration

RMEM, IDLE = "net.ipv4.tcp_rmem", "net.ipv4.tcp_slow_start_after_idle"


@pytest.fixture
def pair() -> Iterator[tuple[Namespace, Namespace]]:
    with namespaces() as made:
        yield made


def value(place: Namespace, key: str) -> str:
    return " ".join(place.run("cat", f"/proc/sys/{key.replace('.', '/')}").stdout.split())


def mtu(place: Namespace, link: str = "eth0") -> str:
    return place.run("cat", f"/sys/class/net/{link}/mtu").stdout.strip()


def wait_for(is_so: Callable[[], object], timeout_s: float = 20) -> None:
    due = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < due, "it did not come to be"
        time.sleep(0.1)


def test_apply_verify_drift_and_revert_give_back_exact_originals(
    pair: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    place, _ = pair
    before = snapshot(place)
    with tuned_node(place, tmp_path, "mtu_bytes = 1400") as node:
        applied = node.applied()
        assert applied.returncode == 0, applied.stdout + applied.stderr + node.daemon.log.read_text()[-2000:]
        assert value(place, RMEM).split()[:2] == ["4096", "131072"]
        assert int(value(place, RMEM).split()[2]) > 200_000_000
        assert value(place, IDLE) == "0"
        assert mtu(place) == mtu(place, "eth1") == "1400"
        assert node.tune("verify").returncode == 0
        assert set(node.verdicts().values()) == {"CLEAN"}
        assert differences(before, snapshot(place))

        # The kernel tells of a link: noticed at once, long before the poll of a minute.
        place.run("ip", "link", "set", "eth0", "mtu", "1300")
        wait_for(lambda: 'eth0 mtu: it is "1300"' in node.daemon.log.read_text(), timeout_s=15)
        shown = node.tune("verify")
        assert shown.returncode == 1
        assert "drift: eth0 mtu = 1400" in shown.stdout
        assert "last writer unknown" in shown.stdout
        place.run("ip", "link", "set", "eth0", "mtu", "1400")

        reverted = node.tune("revert")
        assert reverted.returncode == 0, reverted.stdout + reverted.stderr
        assert node.tune("verify").stdout.strip() == "nothing is applied"
    # Duplicate address detection runs again after a link went down and up.
    wait_for(lambda: not differences(before, snapshot(place)))


def test_a_manual_change_of_a_sysctl_is_seen_by_the_poll_and_set_again_if_told(
    pair: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    place, _ = pair
    settings = f'drift_poll_s = 1\nreassert = ["{IDLE}"]'
    with tuned_node(place, tmp_path, "channels = false", settings) as node:
        assert node.applied().returncode == 0
        small = "4096 131072 999999"
        place.run("sysctl", "-q", "-w", f"{RMEM}={small}", f"{IDLE}=1")
        wait_for(lambda: f'{RMEM}: it is "{small}"' in node.daemon.log.read_text())
        wait_for(lambda: value(place, IDLE) == "0")
        assert value(place, RMEM) == small
        assert node.verdicts()[RMEM] == "DRIFT"

        for _ in range(2):
            place.run("sysctl", "-q", "-w", f"{IDLE}=1")
            time.sleep(2.5)
        assert value(place, IDLE) == "1", "the third time it is theirs"
        shown = node.tune("verify")
        assert shown.returncode == 5
        assert node.verdicts()[IDLE] == "CONFLICT"

        # What others have changed since is left to them.
        reverted = node.tune("revert")
        assert f"left: {RMEM} is {small}" in reverted.stdout
        assert reverted.returncode == 5
        assert value(place, RMEM) == small


def test_a_plan_is_refused_when_the_node_has_moved(pair: tuple[Namespace, Namespace], tmp_path: Path) -> None:
    place, _ = pair
    with tuned_node(place, tmp_path) as node:
        asked = node.planned()
        place.run("sysctl", "-q", "-w", f"{RMEM}=4096 131072 7000000")
        moved = node.tune("apply", asked)
        assert moved.returncode == 5
        assert "plan again" in moved.stderr
        assert value(place, RMEM) == "4096 131072 7000000"

        asked = node.planned()
        place.run("ip", "link", "set", "eth1", "down")
        place.run("ip", "link", "set", "eth1", "name", "eth9")
        renamed = node.tune("apply", asked)
        assert renamed.returncode == 5

        asked = node.planned()
        place.run("ip", "link", "delete", "eth9")
        gone = node.tune("apply", asked)
        assert gone.returncode == 5
        assert node.tune("apply", "0" * 64).returncode == 5


def test_a_renamed_link_is_given_back_and_one_that_is_gone_is_told(
    pair: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    place, _ = pair
    with tuned_node(place, tmp_path, "mtu_bytes = 1400\nchannels = false") as node:
        assert node.applied().returncode == 0
        place.run("ip", "link", "delete", "eth1")
        place.run("ip", "link", "set", "eth0", "down")
        place.run("ip", "link", "set", "eth0", "name", "fast0")
        reverted = node.tune("revert")
        assert reverted.returncode == 0, reverted.stdout
        assert "gone: eth1 mtu" in reverted.stdout
        assert mtu(place, "fast0") == "1500"


def test_apply_and_revert_answer_on_the_admin_socket_alone(pair: tuple[Namespace, Namespace], tmp_path: Path) -> None:
    with tuned_node(pair[0], tmp_path) as node, node.daemon.channel() as channel:
        stub = tuning_pb2_grpc.TuningStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.Apply(tuning_pb2.ApplyRequest(), timeout=5)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        with pytest.raises(grpc.RpcError) as refused:
            stub.Revert(tuning_pb2.RevertRequest(), timeout=5)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert stub.Verify(tuning_pb2.VerifyRequest(), timeout=5).verdicts == []


def test_a_job_with_a_lease_keeps_its_link_from_being_reset(pair: tuple[Namespace, Namespace], tmp_path: Path) -> None:
    place, _ = pair
    channels = ("cat", "/sys/class/net/eth0/queues/rx-1/rps_cpus")
    with tuned_node(place, tmp_path) as node, node.daemon.channel() as channel:
        ask = iter([gate_pb2.RegisterJobRequest(job="job", rank=0)])
        stream: Any = gate_pb2_grpc.GateStub(channel).RegisterJob(_then_nothing(ask))
        next(stream)
        held = node.applied()
        assert held.returncode == 5
        assert "deferred: eth0 channels.rx is 1" in held.stdout
        assert "lease" in held.stdout
        assert f"applied: {IDLE} is 0" in held.stdout
        assert place.run(*channels).returncode != 0

        forced = node.tune("apply", node.planned(), "--ignore-leases")
        assert forced.returncode == 0, forced.stdout + forced.stderr
        assert place.run(*channels).returncode == 0
        stream.cancel()


def _then_nothing(first: Iterator[gate_pb2.RegisterJobRequest]) -> Iterator[gate_pb2.RegisterJobRequest]:
    yield from first
    time.sleep(30)


def test_a_change_that_cuts_the_node_off_is_undone(pair: tuple[Namespace, Namespace], tmp_path: Path) -> None:
    place, other = pair
    # The other end takes 1300 bytes at most: small packets pass, those that fill the new MTU do not.
    other.run("ip", "link", "set", "eth0", "mtu", "1300")
    place.run("ip", "link", "set", "eth0", "mtu", "1300")
    with tuned_node(place, tmp_path, "mtu_bytes = 1400\nchannels = false") as node:
        undone = node.applied()
        assert undone.returncode == 6
        assert "10.77.0.2 is not reached" in undone.stdout
        assert mtu(place) == "1300"
        assert node.tune("verify").stdout.strip() == "nothing is applied"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_daemon_that_dies_or_hangs_before_it_confirms_leaves_nothing(
    pair: tuple[Namespace, Namespace], tmp_path: Path, how: signal.Signals
) -> None:
    place, other = pair
    with tuned_node(place, tmp_path, "mtu_bytes = 1400\nchannels = false") as node:
        asked = node.planned()
        # Nothing answers from now on, so the daemon waits for proof until it is struck.
        other.run("ip", "link", "set", "eth0", "mtu", "1200")
        asking = subprocess.Popen(
            [*_ctl(node), "tune", "apply", "--admin-address", str(node.daemon.admin_socket), asked],
            env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_for(lambda: mtu(place) == "1400")
        os.kill(node.daemon.process.pid, how)
        # The guard is a process of its own; it acts after [tuning] confirm_s.
        wait_for(lambda: mtu(place) == "1500", timeout_s=30)
        wait_for(lambda: value(place, IDLE) == "1")
        if how is signal.SIGSTOP:
            # It finds the guard's record when it goes on, and undoes nothing twice.
            os.kill(node.daemon.process.pid, signal.SIGCONT)
            assert asking.wait(30) == 6
            assert mtu(place) == "1500"
        asking.wait(30)


def _ctl(node: TunedNode) -> list[str]:
    line = command()
    return [line[0], "-m", "clockgated.ctl.main", "--address", str(node.daemon.socket)]


def test_what_is_applied_survives_a_restart_and_is_given_back_without_a_daemon(
    pair: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    place, _ = pair
    before = snapshot(place)
    with tuned_node(place, tmp_path, "channels = false") as node:
        assert node.applied().returncode == 0
        assert node.daemon.stop() == 0
    assert value(place, IDLE) == "0"
    with tuned_node(place, tmp_path, "channels = false") as node:
        assert node.tune("verify").returncode == 0
        assert len(node.verdicts()) == 3
        config = node.daemon.config
    done = subprocess.run(
        command("--config", config, "--revert-tuning", python=python_in(place, tmp_path)),
        env=environment(), capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert differences(before, snapshot(place)) == []
