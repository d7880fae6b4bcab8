"""The sidecar against a real gRPC server that is slow, dies, returns, and talks nonsense."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clockgate.v1 import clock_pb2, gate_pb2
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.gate.address import DEFAULT_SOCKET, resolve_address
from clockgate_trainer.gate.clocks import boot_ns
from clockgate_trainer.gate.model import Limits, SaveVerdict, StepVerdict
from clockgate_trainer.gate.policy import LocalVerdict, OnUnknown
from clockgate_trainer.gate.sidecar import NullSidecar, Sidecar
from support.fake_daemon import FakeDaemon, make_reading

LIMITS = Limits(warn_ns=5_000_000, hold_ns=50_000_000)
UNREACHABLE = 1 << clock_pb2.REASON_CODE_DAEMON_UNREACHABLE
NEVER = 1 << clock_pb2.REASON_CODE_DAEMON_NEVER_REACHED
EXPIRED = 1 << clock_pb2.REASON_CODE_READING_EXPIRED


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    made = FakeDaemon(tmp_path / "clock.sock")
    yield made
    made.stop()


@pytest.fixture
def sidecar(daemon: FakeDaemon) -> Iterator[Sidecar]:
    made = Sidecar(daemon.address, LIMITS, job="job", rank=3)
    yield made
    made.close()


def now(sidecar: Sidecar, on_unknown: OnUnknown = OnUnknown.HOLD) -> LocalVerdict:
    return sidecar.verdict(boot_ns(), on_unknown)


def wait_for(condition: Callable[[], bool], within_s: float) -> float:
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < within_s, f"not so after {within_s} s"
        time.sleep(0.01)
    return time.monotonic() - started


def test_a_socket_that_does_not_exist_is_never_reached_and_never_waited_for(sidecar: Sidecar) -> None:
    started = time.monotonic()
    sidecar.ask(1)
    verdict = now(sidecar)
    assert time.monotonic() - started < 0.1
    assert (verdict.step, verdict.reasons) == (StepVerdict.HOLD, NEVER)
    assert not sidecar.await_answer(0.3)
    assert not sidecar.reached()


def test_checks_carry_job_rank_step_and_limits(daemon: FakeDaemon, sidecar: Sidecar) -> None:
    daemon.start()
    assert sidecar.await_answer(10)
    sidecar.ask(17)
    wait_for(lambda: any(request.step == 17 for request in daemon.requests), 10)
    request = next(request for request in daemon.requests if request.step == 17)
    assert (request.job, request.rank) == ("job", 3)
    assert (request.limits.warn_ns, request.limits.hold_ns) == (LIMITS.warn_ns, LIMITS.hold_ns)


def test_a_restarted_daemon_is_used_again_within_two_seconds(daemon: FakeDaemon, sidecar: Sidecar) -> None:
    daemon.start()
    assert sidecar.await_answer(10)
    assert now(sidecar).reasons == 0
    for bound_ns in (200_000, 300_000):
        daemon.stop()
        wait_for(lambda: bool(now(sidecar).reasons & UNREACHABLE), 5)
        assert now(sidecar).step is StepVerdict.PROCEED
        time.sleep(1)  # reconnecting has backed off as far as it does
        daemon.reading = lambda bound_ns=bound_ns: make_reading(bound_ns=bound_ns)  # type: ignore[misc]
        daemon.start()
        back_s = wait_for(lambda bound_ns=bound_ns: (now(sidecar).relative_bound_ns or 0) >= bound_ns, 10)  # type: ignore[misc]
        assert back_s < 2


def test_a_frozen_daemon_ages_until_expiry_then_the_choice_decides(daemon: FakeDaemon, sidecar: Sidecar) -> None:
    daemon.reading = lambda: make_reading(ttl_s=1.5)
    daemon.start()
    assert sidecar.await_answer(10)
    daemon.delay_s = 3.0
    sidecar.ask(5)
    wait_for(lambda: bool(now(sidecar).reasons & UNREACHABLE), 5)
    wait_for(lambda: bool(now(sidecar).reasons & EXPIRED), 5)
    steps = {choice: now(sidecar, choice).step for choice in OnUnknown}
    assert steps == {
        OnUnknown.WARN: StepVerdict.WARN,
        OnUnknown.HOLD: StepVerdict.HOLD,
        OnUnknown.STOP: StepVerdict.STOP,
    }
    daemon.delay_s = 0.0
    wait_for(lambda: now(sidecar).step is StepVerdict.PROCEED, 10)


def test_garbage_and_unknown_answers_are_doubt_not_errors(daemon: FakeDaemon, sidecar: Sidecar) -> None:
    daemon.reading = clock_pb2.Reading
    daemon.judge = lambda request, reading: gate_pb2.CheckResponse()
    daemon.start()
    assert sidecar.await_answer(10)
    assert now(sidecar, OnUnknown.STOP).step is StepVerdict.STOP
    assert "makes no sense" in now(sidecar).detail
    unknown = make_reading(bound_ns=None, state=clock_pb2.CLOCK_STATE_UNKNOWN, ttl_s=60)
    daemon.reading = lambda: unknown
    daemon.judge = lambda request, reading: gate_pb2.CheckResponse(
        step_verdict=gate_pb2.STEP_VERDICT_UNKNOWN,
        save_verdict=gate_pb2.SAVE_VERDICT_SAVE_UNTIMED,
        reading=reading,
    )
    wait_for(lambda: "UNKNOWN" in now(sidecar).detail, 10)
    assert now(sidecar, OnUnknown.WARN).step is StepVerdict.WARN


def test_the_daemons_stricter_answer_stands_while_its_reading_is_the_newest(
    daemon: FakeDaemon, sidecar: Sidecar
) -> None:
    same = make_reading(ttl_s=60)
    daemon.reading = lambda: same
    daemon.judge = lambda request, reading: gate_pb2.CheckResponse(
        step_verdict=gate_pb2.STEP_VERDICT_HOLD, save_verdict=gate_pb2.SAVE_VERDICT_SAVE, reading=reading
    )
    daemon.start()
    assert sidecar.await_answer(10)
    sidecar.ask(1)
    wait_for(lambda: now(sidecar).step is StepVerdict.HOLD, 10)
    time.sleep(3 * daemon.stream_period_s)
    assert now(sidecar).step is StepVerdict.HOLD


def test_something_that_is_no_grpc_server_is_doubt(tmp_path: Path) -> None:
    path = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def chatter() -> None:
            try:
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.sendall(b"220 not what you think\r\n")
            except OSError:
                return  # the test closed the socket

        thread = threading.Thread(target=chatter, daemon=True)
        thread.start()
        sidecar = Sidecar(f"unix:{path}", LIMITS, job="", rank=0)
        try:
            sidecar.ask(1)
            time.sleep(0.5)
            assert now(sidecar).reasons == NEVER
        finally:
            sidecar.close()
            server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_closing_twice_is_quick_even_while_the_daemon_is_frozen(daemon: FakeDaemon) -> None:
    daemon.delay_s = 5.0
    daemon.start()
    sidecar = Sidecar(daemon.address, LIMITS, job="", rank=0)
    sidecar.ask(1)
    time.sleep(0.1)
    started = time.monotonic()
    sidecar.close()
    sidecar.close()
    assert time.monotonic() - started < 2


def test_with_the_check_off_everything_proceeds_and_saves_are_untimed() -> None:
    verdict = NullSidecar().verdict(0, OnUnknown.STOP)
    assert (verdict.step, verdict.save) == (StepVerdict.PROCEED, SaveVerdict.SAVE_UNTIMED)
    assert verdict.detail == "time_sync_check is off"
    assert not NullSidecar().await_answer(100)


def test_the_flag_comes_before_the_environment_before_the_packaged_socket() -> None:
    both = {"CLOCKGATE_ADDRESS": "/e.sock"}
    assert resolve_address("/f.sock", both) == "unix:/f.sock"
    assert resolve_address(None, both) == "unix:/e.sock"
    assert resolve_address(None, {}) == f"unix:{DEFAULT_SOCKET}"


@pytest.mark.parametrize(
    ("value", "target"),
    [
        ("unix:/a/b.sock", "unix:/a/b.sock"),
        ("unix:///a/b.sock", "unix:/a/b.sock"),
        ("/a/b:c.sock", "unix:/a/b:c.sock"),
        ("node7:9776", "node7:9776"),
        ("dns:///node7:9776", "dns:///node7:9776"),
        ("[::1]:9776", "[::1]:9776"),
        ("unix-abstract:name", "unix-abstract:name"),
    ],
)
def test_addresses_are_understood(value: str, target: str) -> None:
    assert resolve_address(value, {}) == target


def test_a_relative_socket_path_is_taken_from_here() -> None:
    assert resolve_address("run/a.sock", {}) == f"unix:{Path.cwd()}/run/a.sock"


def test_a_socket_path_too_long_for_the_kernel_is_refused_with_its_length() -> None:
    with pytest.raises(ConfigError, match=r"--clock_daemon.*120 bytes.*107"):
        resolve_address("/" + 119 * "x", {})
