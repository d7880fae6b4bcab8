"""clockgatectl doctor and support-bundle beside a real daemon: alive, dead, and stopped in the middle."""

import json
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Clockgated, clockgated, ctl, toml

pytestmark = pytest.mark.integration

SECRET = "hf_verysecretverysecret123"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clockgated]:
    folder = tmp_path_factory.mktemp("node")
    recording = folder / "reading.jsonl"
    reading = {"after_s": 0, "bound_ns": 200_000, "identity": "ntp:192.0.2.1", "stratum": 2}
    recording.write_text(json.dumps(reading) + "\n")
    config = toml(folder, clock='source = "recorded"\nsync_cycles = 1', extra=f'[recorded]\nfile = "{recording}"')
    with clockgated(folder, f'# token = "{SECRET}"\n{config}') as running:
        yield running


def run(folder: Path, command: str, *more: str) -> subprocess.CompletedProcess[str]:
    """clockgatectl against the daemon, or the remains of one, in `folder`."""
    where = ("--admin-address", str(folder / "admin/admin.sock"), "--config", str(folder / "clockgated.toml"))
    return ctl("--address", str(folder / "clockgate.sock"), command, *where, *more)


def findings(folder: Path) -> tuple[int, dict[str, Any]]:
    done = run(folder, "doctor", "--json")
    shown = json.loads(done.stdout)
    assert shown["exit_code"] == done.returncode, done.stderr
    return done.returncode, {one["subject"]: one for one in shown["findings"]}


def unpack(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        found = {member.name.partition("/")[2]: archive.extractfile(member) for member in archive}
        return {name: file.read().decode() for name, file in found.items() if file is not None}


def test_doctor_sees_a_good_clock_and_looks_at_the_node(daemon: Clockgated) -> None:
    due = time.monotonic() + 15
    while "SYNCHRONIZED" not in daemon.ctl("status").stdout and time.monotonic() < due:
        time.sleep(0.2)
    _, found = findings(daemon.config.parent)
    assert found["clockgated"]["level"] == "ok"
    assert found["clock"]["level"] == "ok"
    assert found["leases"]["level"] == "ok"
    assert found["configuration"]["level"] == "ok"
    assert 'mode "observe"' in found["configuration"]["seen"]
    assert {"time daemons", "chronyd", "kernel clock", str(daemon.socket.parent / "state")} <= set(found)


def test_bundle_of_a_living_daemon_holds_its_answers_and_no_secret(daemon: Clockgated, tmp_path: Path) -> None:
    target = tmp_path / "bundle.tar.gz"
    done = run(daemon.config.parent, "support-bundle", "--output", str(target))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(target)
    assert "collecting status.json (1 of " in done.stderr
    assert target.stat().st_mode & 0o777 == 0o600
    files = unpack(target)
    assert json.loads(files["status.json"])["source_kind"] == "recorded"
    assert json.loads(files["epochs.json"])["epochs"]
    assert {"health.json", "fabric.json", "tuning-plan.json"} <= set(files)
    assert "[redacted]" in files["config/clockgated.toml"]
    assert 'source = "recorded"' in files["config/clockgated.toml"]
    assert json.loads(files["config/plan.json"])["mode"] == "observe"
    assert "last-reading.json" in files["files.txt"]
    assert "clockgate 0." in files["versions.txt"]
    assert not any(SECRET in text for text in files.values())
    again = run(daemon.config.parent, "support-bundle", "--output", str(target))
    assert again.returncode == 1
    assert "exists already" in again.stderr


def test_doctor_and_bundle_work_when_the_daemon_is_dead(tmp_path: Path) -> None:
    (tmp_path / "clockgated.toml").write_text(toml(tmp_path))
    (tmp_path / "run").mkdir()
    (tmp_path / "run/last-reading.json").write_text("{}")
    done = run(tmp_path, "support-bundle", "--output", str(tmp_path), "--json")
    assert done.returncode == 3, done.stderr
    shown = json.loads(done.stdout)
    problems = {one["name"]: one["problem"] for one in shown["collectors"]}
    assert "no socket there" in problems["status.json"]
    assert problems["config/clockgated.toml"] is None
    files = unpack(Path(shown["path"]))
    assert "status.json" not in files
    examined = json.loads(files["doctor.json"])
    assert examined["exit_code"] == 3
    levels = {one["subject"]: one["level"] for one in examined["findings"]}
    assert levels["clockgated"] == "fault"
    assert "kernel clock" in levels
    assert "last-reading.json" in files["files.txt"]


def test_a_stopped_daemon_delays_doctor_and_bundle_by_its_deadlines_only(daemon: Clockgated, tmp_path: Path) -> None:
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        done = run(daemon.config.parent, "support-bundle", "--output", str(tmp_path / "b.tar.gz"))
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    assert done.returncode == 3, done.stderr
    assert "no answer within" in done.stderr
    assert "doctor.json" in unpack(tmp_path / "b.tar.gz")
