"""Health and fabric of this machine from a real daemon, as people and scripts ask for them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Clockgated, clockgated, ctl, environment, toml
from support.nvml import make_library
from support.oldest import oldest_python

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

# Some memory is always in use: so there is a warning on any machine. Nothing else shall count.
ONE_WARNING = "[node]\nmemory_low_percent = 100\nlook_interval_s = 1\n"


def recorded(folder: Path, extra: str) -> str:
    """A configuration of a clock that is good, with further lines."""
    (folder / "recorded.jsonl").write_text('{"after_s": 0, "bound_ns": 200000, "identity": "ntp:192.0.2.1"}\n')
    extra += f'[recorded]\nfile = "{folder / "recorded.jsonl"}"\n'
    return toml(folder, clock='source = "recorded"\nsync_cycles = 1', extra=extra)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clockgated]:
    folder = tmp_path_factory.mktemp("node")
    with clockgated(folder, recorded(folder, f'{ONE_WARNING}[tuning]\npeers = ["127.0.0.1"]\n')) as running:
        yield running


def test_health_names_what_was_found_and_its_exit_code_says_so(daemon: Clockgated) -> None:
    asked = daemon.ctl("health", "--json")
    health = json.loads(asked.stdout)
    codes = {one["code"]: one for one in health["findings"]}
    assert "FINDING_CODE_MEMORY_LOW" in codes
    assert codes["FINDING_CODE_MEMORY_LOW"]["next_step"]
    assert asked.returncode == health["exit_code"] == 1
    assert health["host"]["memory_available_bytes"] < health["host"]["memory_total_bytes"]
    # This machine may have troubles of its own; a warning alone is nothing critical.
    critical = any(one["severity"] == "SEVERITY_CRITICAL" for one in health["findings"])
    assert daemon.ctl("health", "--fail-on", "critical").returncode == int(critical)


def test_health_of_no_daemon_is_unreachable(tmp_path: Path) -> None:
    asked = ctl("--address", str(tmp_path / "nothing.sock"), "health")
    assert asked.returncode == 3
    assert "no socket there" in asked.stderr


def test_a_watch_of_health_ends_with_the_last_answer(daemon: Clockgated) -> None:
    line = [sys.executable, "-W", "error", "-m", "clockgated.ctl.main", "--address", str(daemon.socket)]
    process = subprocess.Popen([*line, "health", "--watch", "--json"], env=environment(), stdout=subprocess.PIPE)
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    second = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 1
    assert second["sequence"] >= first["sequence"]


def asked_fabric(daemon: Clockgated, interpreter: Path) -> Any:
    """The answer with peers in it: on a busy machine they may be asked for longer than a call waits."""
    due = time.monotonic() + 60
    while True:
        asked = ctl("--address", str(daemon.socket), "fabric", "--json", python=interpreter)
        assert asked.returncode == 0, asked.stderr
        fabric = json.loads(asked.stdout)
        if fabric["peers"] or time.monotonic() > due:
            return fabric


@pytest.mark.parametrize("python", ["oldest", "current"])
def test_fabric_tells_of_links_and_peers_on_both_runtimes(daemon: Clockgated, python: str) -> None:
    interpreter = oldest_python() if python == "oldest" else Path(sys.executable)
    fabric = asked_fabric(daemon, interpreter)
    names = {one for one in os.listdir("/sys/class/net") if one not in ("lo", "bonding_masters")}  # noqa: PTH208
    assert {one["name"] for one in fabric["links"]} <= names
    if os.geteuid() == 0:
        (peer,) = fabric["peers"]
        assert (peer["peer"], peer["sent"]) == ("127.0.0.1", 10)
        assert peer["received"] > 0
        assert 0 < peer["median_us"] <= peer["p95_us"]


def test_fabric_for_a_person_names_the_links(daemon: Clockgated) -> None:
    asked_fabric(daemon, Path(sys.executable))
    asked = daemon.ctl("fabric")
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout.startswith("links:\n")
    assert "127.0.0.1: " in asked.stdout


def test_a_gpu_of_the_library_is_seen_and_judged(tmp_path: Path) -> None:
    make_library(tmp_path)
    with clockgated(
        tmp_path, recorded(tmp_path, "[node]\nlook_interval_s = 1\n"), LD_LIBRARY_PATH=str(tmp_path)
    ) as daemon:
        health = json.loads(daemon.ctl("health", "--json").stdout)
    assert [gpu["name"] for gpu in health["gpus"]] == ["NVIDIA Test", "NVIDIA Test"]
    found = {(one["code"], one["subject"]) for one in health["findings"]}
    assert ("FINDING_CODE_GPU_ROW_REMAP", "gpu 1") in found
    assert ("FINDING_CODE_NVLINK_DOWN", "gpu 0") in found


def test_a_gpu_driver_that_hangs_is_a_finding_and_holds_up_nothing(tmp_path: Path) -> None:
    make_library(tmp_path, hangs=True)
    with clockgated(
        tmp_path, recorded(tmp_path, "[node]\nlook_interval_s = 1\n"), LD_LIBRARY_PATH=str(tmp_path)
    ) as daemon:
        due = time.monotonic() + 60
        while "LOOK_OVERDUE  gpus" not in daemon.ctl("health").stdout:
            assert time.monotonic() < due
        assert daemon.ctl("status").returncode == 0
        began = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - began < 8
