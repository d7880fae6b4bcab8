"""Sends cases to a real daemon for as long as asked; exit 1 at the first that it does not take as it should.

Meanwhile, and after it, the daemon has to live, to answer GetReading in time with a reading that is measured anew, and
to give back what it took. The time is shared by this interpreter's libraries and, where that runtime was made before,
the oldest ones.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom

import grpc
from clockgate.v1 import clock_pb2, clock_pb2_grpc
from clockgated.service.admission import UNARY_WORKERS
from support.daemon import Clockgated
from support.fuzz_api import health
from support.fuzz_api.cases import make_case, try_case
from support.fuzz_api.doors import MAX_STREAMS, Door, opened
from support.fuzz_api.methods import methods
from support.oldest import FOLDER

_SENDERS = 4
_READING_S = 5.0
_WARM_UP_CASES = 300
# Those of three servers' workers, and the daemon's and grpc's own.
_MOST_THREADS = 3 * (MAX_STREAMS + UNARY_WORKERS) + 60


class Campaign:
    """Cases of one seed against one daemon, from several threads; `failure` is the first that is found."""

    def __init__(self, daemon: Clockgated, doors: tuple[Door, ...], seed: int, first: int) -> None:
        self.failure: str | None = None
        self.endings: Counter[str] = Counter()
        self._daemon = daemon
        self._doors = doors
        self._seed = seed
        self._next = first
        self._lock = threading.Lock()
        self._over = threading.Event()

    def run(self, seconds: float) -> None:
        """Send for that long, or until a failure."""
        senders = [threading.Thread(target=self._send) for _ in range(_SENDERS)]
        for sender in senders:
            sender.start()
        due = time.monotonic() + seconds
        with self._doors[0].channel() as channel:
            before = usage = None
            while time.monotonic() < due and self.failure is None:
                self._look(channel)
                if before is None and self.endings.total() >= _WARM_UP_CASES:
                    before = usage = health.usage(self._daemon.process.pid)
                time.sleep(0.2)
            self._over.set()
            for sender in senders:
                sender.join()
            self._look(channel)
        if self.failure is None and usage is not None and before is not None:
            self.failure = health.growth(self._daemon.process.pid, before, _MOST_THREADS)
            print(f"after {self.endings.total()} cases: {health.usage(self._daemon.process.pid)}; warm it had {before}")
        self.failure = self.failure or health.complaint(self._daemon.log)

    def one(self, number: int) -> None:
        """Send case `number` alone."""
        case = make_case(self._seed, number, methods(), len(self._doors))
        print(case)
        door = self._doors[case.door]
        with door.channel() as channel:
            ending, problem = try_case(case, door, channel)
            self.endings[ending] += 1
            self.failure = problem or health.complaint(self._daemon.log)

    def _send(self) -> None:
        known = methods()
        with ExitStack() as stack:
            channels = [stack.enter_context(door.channel()) for door in self._doors]
            while not self._over.is_set():
                with self._lock:
                    number, self._next = self._next, self._next + 1
                case = make_case(self._seed, number, known, len(self._doors))
                ending, problem = try_case(case, self._doors[case.door], channels[case.door])
                with self._lock:
                    self.endings[ending] += 1
                if problem is not None:
                    self._fail(f"{problem}\n{case}")

    def _look(self, channel: grpc.Channel) -> None:
        """GetReading for somebody who means well."""
        if self._daemon.process.poll() is not None:
            self._fail(f"the daemon ended with {self._daemon.process.returncode}")
            return
        try:
            ask = clock_pb2_grpc.ClockStub(channel).GetReading
            reading = ask(clock_pb2.GetReadingRequest(), timeout=_READING_S, wait_for_ready=True).reading
        except grpc.RpcError as error:
            self._fail(f"GetReading failed meanwhile: {error}")
            return
        if reading.age_ns > _READING_S * 1_000_000_000:
            self._fail(f"the reading is {reading.age_ns / 1e9:.1f} s old: the cycle does not run")

    def _fail(self, problem: str) -> None:
        with self._lock:
            self.failure = self.failure or problem
        self._over.set()


def main() -> int:
    """Parse, run, tell."""
    parser = argparse.ArgumentParser(prog="python -m support.fuzz_api", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="default: another each time")
    parser.add_argument("--case", type=int, help="this one alone")
    options = parser.parse_args()
    seed = SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    oldest = FOLDER / "bin/python"
    runtimes = [Path(sys.executable), *([oldest] if (FOLDER / "complete").exists() else [])]
    for turn, python in enumerate(runtimes):
        print(f"fuzzing with --seed {seed}: {python}", flush=True)
        with tempfile.TemporaryDirectory(prefix="clockgate-fuzz-") as folder, opened(Path(folder), python) as running:
            campaign = Campaign(*running, seed, first=turn * 1_000_000)
            if options.case is None:
                campaign.run(options.seconds / len(runtimes))
            else:
                campaign.one(options.case)
            if campaign.failure is not None:
                print(f"failed: {campaign.failure}", file=sys.stderr)
                return 1
            told = ", ".join(f"{count} {ending}" for ending, count in campaign.endings.most_common())
            print(f"{campaign.endings.total()} cases, no failure: {told}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
