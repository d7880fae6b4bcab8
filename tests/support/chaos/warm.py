"""The other end of the zygote: start processes, send them signals, wait for their ends. For several threads."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

_ANSWER_S = 60


@dataclass(frozen=True)
class Process:
    """One forked process."""

    warm: "Warm"
    pid: int
    log: Path

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing when it has ended."""
        if self.code() is None:
            os.kill(self.pid, number)

    def code(self) -> int | None:
        """Its exit code (minus a signal's number), None while it runs."""
        return self.warm.code(self.pid)

    def wait(self, timeout_s: float) -> int | None:
        """As `code`, after waiting for it up to `timeout_s`."""
        return self.warm.wait(self.pid, timeout_s)

    def end(self) -> None:
        """Kill it, stopped or not, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait(10)


class Warm:
    """A running zygote; a context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "support.chaos.zygote"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._ids = count()
        # One question at a time: the zygote looks for a line only when none is in its buffer.
        self._asking = threading.Lock()
        self._news = threading.Condition()
        self._pids: dict[int, int] = {}
        self._codes: dict[int, int] = {}
        self._ready = False
        self._reader = threading.Thread(target=self._read, name="zygote", daemon=True)
        self._reader.start()

    def __enter__(self) -> "Warm":
        with self._news:
            if not self._news.wait_for(lambda: self._ready, _ANSWER_S):
                raise RuntimeError("the zygote did not start: see its output")
        return self

    def __exit__(self, *unused: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._reader.join(20)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def start(self, function: str, arguments: Mapping[str, object], log: Path) -> Process:
        """Fork a process that calls `function` ("module:name"); its output is appended to `log`."""
        number = next(self._ids)
        line = json.dumps({"id": number, "function": function, "arguments": arguments, "log": str(log)})
        with self._asking, self._news:
            assert self._process.stdin is not None
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            if not self._news.wait_for(lambda: number in self._pids, _ANSWER_S):
                raise RuntimeError(f"the zygote does not answer: {line}")
            return Process(self, self._pids.pop(number), log)

    def adopt(self, pid: int, log: Path) -> Process:
        """A process that a forked one started: when that one is gone, this one's end is told as well."""
        return Process(self, pid, log)

    def code(self, pid: int) -> int | None:
        """See Process."""
        with self._news:
            return self._codes.get(pid)

    def wait(self, pid: int, timeout_s: float) -> int | None:
        """See Process."""
        due = time.monotonic() + timeout_s
        with self._news:
            self._news.wait_for(lambda: pid in self._codes, max(due - time.monotonic(), 0))
            return self._codes.get(pid)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            with self._news:
                if "exit" in told:
                    self._codes[told["exit"]] = told["code"]
                elif "pid" in told:
                    # A number that was used before belongs to the new process.
                    self._codes.pop(told["pid"], None)
                    self._pids[told["id"]] = told["pid"]
                else:
                    self._ready = True
                self._news.notify_all()
