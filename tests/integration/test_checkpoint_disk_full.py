"""A real file system that is full, or read-only, during a save: the run goes on and the last checkpoint stands."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

SIZE_KB = 256


def test_a_full_or_read_only_disk_costs_the_new_checkpoint_only(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount_and_run = f'mount -t tmpfs -o size={SIZE_KB}k tmpfs "$1" && exec "$2" -m support.fill_disk "$1"'
    ran = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount_and_run, "sh", disk, sys.executable],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["first"]
    *failures, last = told["attempts"]
    assert len(failures) > 5
    for attempt in failures:
        assert not attempt["saved"]
        assert "No space left on device" in attempt["reason"]
        assert attempt["first_verified"]
        assert attempt["resumes_from"] == 1
        assert attempt["entries"] == ["checkpoint-1"]
    # The adapter's own writer and our files were both hit.
    reasons = " ".join(attempt["reason"] for attempt in failures)
    assert "serializing" in reasons
    assert "(errno 28) at " in reasons
    assert last["saved"]
    assert last["resumes_from"] == 2
    assert not told["read_only"]["saved"]
    assert "Read-only file system (errno 30)" in told["read_only"]["reason"]
    assert told["verified_at_the_end"]
