"""No-step leases of jobs in other processes, on a real daemon."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.daemon import Clockgated, clockgated, toml
from support.tools import require_tool

pytestmark = pytest.mark.integration


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Clockgated]:
    recording = tmp_path / "recorded.jsonl"
    recording.write_text('{"after_s": 0, "bound_ns": 200000}\n')
    config = toml(tmp_path, clock='source = "recorded"', extra=f'[recorded]\nfile = "{recording}"')
    with clockgated(tmp_path, config) as running:
        yield running


@contextmanager
def job(daemon: Clockgated, name: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that holds a lease for as long as it lives."""
    request = json.dumps({"job": name, "rank": 1})
    line = [str(require_tool("grpcurl")), "-plaintext", "-unix", "-max-time", "60", "-d", request]
    line += [str(daemon.socket), "clockgate.v1.Gate/RegisterJob"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def jobs(daemon: Clockgated) -> list[str]:
    shown = daemon.ctl("leases", "--json")
    assert shown.returncode == 0, shown.stderr
    return [lease["job"] for lease in json.loads(shown.stdout)["leases"]]


def wait_for(daemon: Clockgated, wanted: list[str]) -> None:
    due = time.monotonic() + 20
    while jobs(daemon) != wanted:
        assert time.monotonic() < due, jobs(daemon)
        time.sleep(0.1)


def test_a_lease_lasts_as_long_as_its_process_however_that_ends(daemon: Clockgated) -> None:
    with job(daemon, "first"), job(daemon, "second") as second:
        due = time.monotonic() + 20
        while sorted(jobs(daemon)) != ["first", "second"]:
            assert time.monotonic() < due
            time.sleep(0.1)
        second.kill()
        wait_for(daemon, ["first"])
    wait_for(daemon, [])


def test_an_operator_ends_a_lease_and_the_job_hears_why(daemon: Clockgated) -> None:
    with job(daemon, "stuck") as process:
        wait_for(daemon, ["stuck"])
        assert "lease 1 of job stuck, rank 1: open for" in daemon.ctl("leases").stdout
        broken = daemon.ctl("lease", "break", "1")
        assert broken.returncode == 0, broken.stderr
        assert "its job gets no other lease for 600 s" in broken.stdout
        said = process.communicate(timeout=20)[0]
        assert '"isEnforced"' not in said, "false in observe mode: nobody of ours steers"
        assert "lease 1 of job stuck, rank 1, is over: the operator broke it" in said
    assert daemon.ctl("lease", "break", "1").returncode == 1
    with job(daemon, "stuck") as again:
        assert "PermissionDenied" in again.communicate(timeout=20)[0]
    assert "the operator broke lease 1 of job stuck" in daemon.log.read_text()
