"""Carrying a plan out for a test: files written, daemons started in order, each ready before the next, all stopped."""

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from clockgated.manage.feed import SHM_KEY_BASE
from clockgated.manage.planned import Plan, PlannedDaemon
from support import veth


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=20)


def write(plan: Plan) -> None:
    for folder in plan.folders:
        Path(folder.path).mkdir(mode=folder.mode, parents=True, exist_ok=True)
        Path(folder.path).chmod(folder.mode)
    for file in plan.files:
        Path(file.path).write_text(file.text)


def wait_for(condition: Callable[[], bool], within_s: float = 15) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, f"not within {within_s} s"
        time.sleep(0.1)


@dataclass
class Running:
    """The daemons of one plan, as the supervisor would run them."""

    processes: dict[str, subprocess.Popen[bytes]]
    logs: dict[str, Path]

    def log(self, daemon: PlannedDaemon) -> str:
        return self.logs[daemon.name].read_text(errors="replace")

    def is_alive(self, daemon: PlannedDaemon) -> bool:
        return self.processes[daemon.name].poll() is None

    def is_settled(self, daemon: PlannedDaemon) -> bool:
        is_ready = all(Path(path).exists() for path in daemon.ready_when.paths)
        return is_ready or not self.is_alive(daemon)


@contextlib.contextmanager
def running(plan: Plan, where: veth.Namespace, folder: Path) -> Iterator[Running]:
    """Start each daemon of the plan and wait until it is ready, as planned; stop all in the planned order."""
    write(plan)
    started = Running({}, {})
    try:
        for daemon in plan.daemons:
            log = folder / f"{where.name}-{daemon.name}.log"
            with log.open("wb") as output:
                started.processes[daemon.name] = subprocess.Popen(
                    where.command("env", *(f"{key}={value}" for key, value in daemon.environment), *daemon.argv),
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            started.logs[daemon.name] = log
            wait_for(partial(started.is_settled, daemon))
            assert started.is_alive(daemon), started.log(daemon)
        yield started
    finally:
        for daemon in sorted(plan.daemons, key=lambda one: one.stop_order):
            process = started.processes.get(daemon.name)
            if process is not None:
                process.terminate()
                process.wait(timeout=10)
        for segment in plan.shm_segments:
            run("ipcrm", "-M", str(SHM_KEY_BASE + segment))
