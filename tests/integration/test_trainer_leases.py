"""A training job's lease on a real daemon: shown while it trains, back after a restart, gone however the job ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.daemon import Clockgated, clockgated, toml
from support.ports import free_port
from support.tools import ROOT

pytestmark = pytest.mark.integration

LEASE = [("ddp-loop", 0)]


def config(folder: Path) -> str:
    recording = folder / "recorded.jsonl"
    recording.write_text('{"after_s": 0, "bound_ns": 200000}\n')
    return toml(folder, clock='source = "recorded"', extra=f'[recorded]\nfile = "{recording}"')


@contextmanager
def training(daemon: Clockgated, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The example loop on one rank, for as long as it is let."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "CLOCKGATE_ADDRESS": str(daemon.socket),
        "OMP_NUM_THREADS": "1",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    line = [
        sys.executable,
        str(ROOT / "examples/gated/ddp_loop.py"),
        "--steps",
        "1000000000",
        "--save_every",
        "1000000000",
    ]
    with subprocess.Popen([*line, "--output_dir", str(folder)], env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(daemon: Clockgated, wanted: list[tuple[str, int]], within_s: float = 40) -> float:
    started = time.monotonic()
    seen = None
    while seen != wanted:
        assert time.monotonic() - started < within_s, seen
        shown = daemon.ctl("leases", "--json")
        assert shown.returncode == 0, shown.stderr
        seen = [(lease["job"], lease["rank"]) for lease in json.loads(shown.stdout)["leases"]]
    return time.monotonic() - started


def test_the_job_is_shown_while_it_trains_and_not_after_it_was_killed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        daemon = stack.enter_context(clockgated(tmp_path, config(tmp_path)))
        job = stack.enter_context(training(daemon, tmp_path / "run"))
        wait_for(daemon, LEASE)
        assert "of job ddp-loop, rank 0: open for" in daemon.ctl("leases").stdout
        daemon.process.kill()
        daemon.process.wait(10)
        restarted = stack.enter_context(clockgated(tmp_path, daemon.config.read_text(encoding="utf-8")))
        # Measured well below 2 s on an idle machine; here two cores serve many tests.
        wait_for(restarted, LEASE, within_s=15)
        job.send_signal(signal.SIGKILL)
        wait_for(restarted, [], within_s=15)
