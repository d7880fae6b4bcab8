"""Start, reload, stop, and everything that can be wrong at a start, with real processes and real signals."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from clockgate.v1 import clock_pb2, clock_pb2_grpc
from support.daemon import SOURCE_ROOTS, Clockgated, clockgated, ctl, environment, run_to_end, toml
from support.fake_systemd import write_package

pytestmark = pytest.mark.integration

RECORDED = '{"after_s": 0, "bound_ns": 200000, "identity": "ntp:192.0.2.1", "stratum": 2}\n'


def settings(folder: Path, clock: str = "", extra: str = "") -> str:
    """A daemon that needs no time daemon: it replays a recording of a good clock."""
    recording = folder / "recorded.jsonl"
    recording.write_text(RECORDED)
    return toml(
        folder,
        clock=f'source = "recorded"\nsync_cycles = 1\n{clock or "poll_interval_s = 0.1"}',
        extra=f'{extra}\n[recorded]\nfile = "{recording}"',
    )


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Clockgated]:
    with clockgated(tmp_path, settings(tmp_path)) as running:
        yield running


def wait_for_log(daemon: Clockgated, text: str, timeout_s: float = 15) -> None:
    due = time.monotonic() + timeout_s
    while text not in daemon.log.read_text():
        assert time.monotonic() < due, f"no {text!r} in the log: {daemon.log.read_text()}"
        time.sleep(0.05)


def read(daemon: Clockgated) -> clock_pb2.Reading:
    with daemon.channel() as channel:
        return clock_pb2_grpc.ClockStub(channel).GetReading(clock_pb2.GetReadingRequest(), timeout=5).reading


def watch(channel: grpc.Channel) -> Any:
    return clock_pb2_grpc.ClockStub(channel).WatchReadings(clock_pb2.WatchReadingsRequest(), timeout=30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_within_two_seconds_with_open_streams(daemon: Clockgated, number: signal.Signals) -> None:
    with daemon.channel() as channel:
        stream = watch(channel)
        next(stream)
        began = time.monotonic()
        daemon.process.send_signal(number)
        assert daemon.process.wait(10) == 0
        assert time.monotonic() - began < 2
        with pytest.raises(grpc.RpcError) as caught:
            list(stream)
        error: Any = caught.value
        assert error.code() == grpc.StatusCode.UNAVAILABLE
    assert not daemon.socket.exists()
    assert not daemon.admin_socket.exists()
    assert "Traceback" not in daemon.log.read_text()


def with_hanging_chronyc(folder: Path) -> str:
    fake = folder / "chronyc"
    fake.write_text(f"#!/bin/sh\necho $$ >{folder / 'chronyc.pid'}\nexec sleep 30\n")
    fake.chmod(0o755)
    return toml(folder, clock='source = "chrony"', chrony=f'chronyc = "{fake}"\ntimeout_s = 1')


def test_stop_does_not_wait_for_a_chronyc_that_hangs(tmp_path: Path) -> None:
    with clockgated(tmp_path, with_hanging_chronyc(tmp_path)) as daemon:
        time.sleep(0.3)
        began = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - began < 2
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "chronyc.pid").read_text()), 0)


def test_stop_during_a_reload_does_not_wait_for_a_chronyc_that_hangs(tmp_path: Path) -> None:
    with clockgated(tmp_path, with_hanging_chronyc(tmp_path)) as daemon:
        time.sleep(0.3)
        daemon.process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        began = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - began < 2


def test_second_instance_ends_with_78_and_names_the_first(daemon: Clockgated) -> None:
    second = run_to_end("--config", daemon.config)
    assert second.returncode == 78
    assert f"another clockgated serves it (process {daemon.process.pid})" in second.stderr
    assert "Traceback" not in second.stderr
    assert read(daemon).state == clock_pb2.CLOCK_STATE_SYNCHRONIZED, "the first one is not disturbed"


def test_daemon_that_was_killed_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    with clockgated(tmp_path, settings(tmp_path)) as first:
        first.process.kill()
        first.process.wait(10)
        assert first.socket.is_socket()
        unreachable = first.ctl("status")
        assert unreachable.returncode == 3
        assert f"{first.socket}: a socket without a daemon; start clockgated" in unreachable.stderr
    with clockgated(tmp_path, settings(tmp_path)) as second:
        assert second.ctl("status").returncode == 0


def test_clients_find_a_restarted_daemon_within_two_seconds(tmp_path: Path) -> None:
    with clockgated(tmp_path, settings(tmp_path)) as first, first.channel() as channel:
        stub = clock_pb2_grpc.ClockStub(channel)
        stub.GetReading(clock_pb2.GetReadingRequest(), timeout=5)
        first.process.kill()
        first.process.wait(10)
        with pytest.raises(grpc.RpcError):
            stub.GetReading(clock_pb2.GetReadingRequest(), timeout=1)
        with clockgated(tmp_path, settings(tmp_path)):
            began = time.monotonic()
            stub.GetReading(clock_pb2.GetReadingRequest(), timeout=5, wait_for_ready=True)
            assert time.monotonic() - began < 2


def test_frozen_daemon_is_unreachable_and_clockgatectl_does_not_hang(daemon: Clockgated) -> None:
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        asked = daemon.ctl("status")
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    assert asked.returncode == 3
    assert "no answer within 2 s; the daemon hangs" in asked.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[clock]\nmax_bound_us = 5\n", "max_bound_us: unknown key; did you mean max_bound_ms?"),
        ("[clock\n", "not valid TOML"),
    ],
)
def test_bad_configuration_ends_with_78_and_no_traceback(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    for check in ([], ["--check"]):
        ran = run_to_end("--config", file, *check)
        assert ran.returncode == 78
        assert f"{file}: " in ran.stderr
        assert said in ran.stderr
        assert "Traceback" not in ran.stderr


def test_directory_in_place_of_the_socket_ends_with_78(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(settings(tmp_path))
    (tmp_path / "clockgate.sock").mkdir()
    ran = run_to_end("--config", file)
    assert ran.returncode == 78
    assert "clockgate.sock: a folder is in the way" in ran.stderr


def test_reload_takes_a_new_configuration_into_use_and_keeps_the_epoch(daemon: Clockgated, tmp_path: Path) -> None:
    epoch = read(daemon).epoch + 1
    assert daemon.ctl("drill", "step", "1s").returncode == 0
    wait_for_log(daemon, f"epoch {epoch}")
    daemon.config.write_text(settings(tmp_path, clock="poll_interval_s = 0.1\nmax_drift_ppm = 123"))
    daemon.process.send_signal(signal.SIGHUP)
    wait_for_log(daemon, "reload: done")
    due = time.monotonic() + 10
    while (reading := read(daemon)).growth_ppb != 123_000:
        assert time.monotonic() < due
        time.sleep(0.1)
    assert reading.epoch == epoch


def test_reload_of_a_bad_file_keeps_the_old_configuration(daemon: Clockgated) -> None:
    daemon.config.write_text("[clock]\nmax_bound_ms = 'wide'\n")
    daemon.process.send_signal(signal.SIGHUP)
    wait_for_log(daemon, "reload: refused, the old configuration stays in use")
    assert 'max_bound_ms = "wide": wanted a number' in daemon.log.read_text()
    before = read(daemon).sequence
    time.sleep(0.5)
    assert read(daemon).sequence > before, "it goes on measuring"


def test_reload_of_other_sockets_asks_for_a_restart(daemon: Clockgated) -> None:
    text = daemon.config.read_text()
    daemon.config.write_text(text.replace("clockgate.sock", "other.sock"))
    daemon.process.send_signal(signal.SIGHUP)
    wait_for_log(daemon, "a change in [api] needs a restart")
    wait_for_log(daemon, "reload: done")
    assert daemon.ctl("status").returncode == 0


def test_streams_above_the_configured_ceiling_are_refused_and_status_still_works(tmp_path: Path) -> None:
    config = settings(tmp_path).replace("[folders]", "max_streams = 2\n[folders]", 1)
    with clockgated(tmp_path, config) as daemon, daemon.channel() as channel:
        streams = [watch(channel) for _ in range(2)]
        for stream in streams:
            next(stream)
        with pytest.raises(grpc.RpcError) as caught:
            next(watch(channel))
        error: Any = caught.value
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert daemon.ctl("status").returncode == 0
        for stream in streams:
            stream.cancel()


def test_systemd_hears_ready_watchdog_reload_and_stop(tmp_path: Path) -> None:
    package = write_package(tmp_path / "python")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(10)
        heard: list[str] = []

        def wait_to_hear(line: str) -> None:
            due = time.monotonic() + 15
            while not any(said == line or said.startswith(f"{line}=") for said in heard):
                assert time.monotonic() < due, heard
                heard.extend(manager.recv(4096).decode().splitlines())

        variables = {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "5000000",
            "PYTHONPATH": f"{SOURCE_ROOTS}:{package}",
        }
        with clockgated(tmp_path, settings(tmp_path), **variables) as daemon:
            wait_to_hear("READY=1")
            wait_to_hear("WATCHDOG=1")
            heard.clear()
            daemon.process.send_signal(signal.SIGHUP)
            wait_to_hear("RELOADING=1")
            wait_to_hear("MONOTONIC_USEC")
            wait_to_hear("READY=1")
            wait_to_hear("STATUS")
            daemon.process.send_signal(signal.SIGTERM)
            wait_to_hear("STOPPING=1")
            assert daemon.process.wait(10) == 0


def test_notify_socket_without_the_module_ends_with_78(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(settings(tmp_path))
    (tmp_path / "python").mkdir()
    # A module of that name that is no package hides an installed one.
    (tmp_path / "python/systemd.py").write_text("")
    path = f"{tmp_path / 'python'}:{SOURCE_ROOTS}"
    ran = run_to_end("--config", file, NOTIFY_SOCKET="/none", PYTHONPATH=path)
    assert ran.returncode == 78
    assert "install python3-systemd" in ran.stderr


def test_watch_goes_on_until_interrupted_and_ends_with_the_last_answer(daemon: Clockgated) -> None:
    line = [sys.executable, "-m", "clockgated.ctl.main", "--address", str(daemon.socket), "status", "--json", "--watch"]
    with subprocess.Popen(line, env=environment(), stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert '"usable": true' in watching.stdout.readline()
        assert '"usable": true' in watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        assert watching.wait(10) == 0


def test_watch_into_a_closed_pipe_ends_quietly(daemon: Clockgated) -> None:
    line = [sys.executable, "-m", "clockgated.ctl.main", "--address", str(daemon.socket), "status", "--watch"]
    with subprocess.Popen(
        line, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        watching.stdout.readline()
        watching.stdout.close()
        assert watching.wait(10) == 1
        assert watching.stderr.read() == ""


def test_address_comes_from_the_environment(daemon: Clockgated) -> None:
    assert ctl("status", CLOCKGATE_ADDRESS=f"unix:{daemon.socket}").returncode == 0
    assert ctl("status", CLOCKGATE_ADDRESS=f"{daemon.socket}.not").returncode == 3


AS_NOBODY = """
import os, shutil, sys
import grpc
from clockgated.ctl.main import main
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""


def as_nobody(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """clockgatectl without privilege, dropped after the imports: the interpreter may lie where only root may go."""
    line = [sys.executable, "-c", AS_NOBODY, *map(str, words)]
    return subprocess.run(line, env=environment(), capture_output=True, text=True, check=False, timeout=30)


def test_unprivileged_users_read_but_do_not_drill() -> None:
    # Not tmp_path, which is private to root, as the folder of a real socket is not.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with clockgated(folder, settings(folder)) as daemon:
            status = as_nobody("--address", daemon.socket, "status")
            assert status.returncode == 0, status.stderr
            drill = as_nobody("drill", "--admin-address", daemon.admin_socket, "clear")
            assert drill.returncode == 3
            assert f"{daemon.admin_socket}: permission denied; run as root" in drill.stderr


def test_version_and_help_need_no_configuration() -> None:
    assert run_to_end("--version").stdout.startswith("clockgated 0.")
    assert "--config" in run_to_end("--help").stdout
