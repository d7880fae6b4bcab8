"""What a client with 1,000 streams costs all others: lateness of the measuring cycle, and GetReading of another one.

    bench/api_load.py [--pairs N] [--window SECONDS]

One daemon, windows with and without the load in turn. Once with the shipped ceiling of 64 streams, so that most are
refused, and once with the highest that can be configured. The load is a process of its own and reads what it gets.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from typing import Any

import grpc
from clockgate.v1 import clock_pb2, clock_pb2_grpc
from support.daemon import Clockgated, clockgated, toml

STREAMS, CONNECTIONS = 1000, 20
# Ceiling, seconds of a cycle, and how many times longer a window is: there are as many cycles in each.
_SETTINGS = ((64, 0.2, 1.0), (256, 1.0, 2.5))
_ASK_EVERY_S = 0.01
_SETTLE_S = 2.0
_NS_PER_S = 1_000_000_000


@dataclass
class Seen:
    """What the well-behaved client saw, in all windows of one kind: ms of each call, stamps of each cycle, ns."""

    took_ms: list[float] = field(default_factory=list)
    cycles: list[list[int]] = field(default_factory=list)


def main() -> int:
    """Measure and print, or be the load."""
    parser = argparse.ArgumentParser(description="1,000 streams, and what others notice of them")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--window", type=float, default=8.0, metavar="SECONDS")
    parser.add_argument("--be-the-load", metavar="SOCKET", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be_the_load:
        asyncio.run(_load(options.be_the_load))
        return 0
    for ceiling, cycle_s, longer in _SETTINGS:
        with (
            tempfile.TemporaryDirectory(prefix="clockgate-load-") as name,
            _daemon(Path(name), ceiling, cycle_s) as daemon,
        ):
            quiet, loaded = measure(daemon, options.pairs, longer * options.window)
        print(
            f"max_streams = {ceiling}, a cycle every {cycle_s:g} s, load average "
            f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        )
        _print("cycle lateness", lateness_ms(quiet.cycles, cycle_s), lateness_ms(loaded.cycles, cycle_s))
        _print("GetReading", quiet.took_ms, loaded.took_ms)
    return 0


def measure(daemon: Clockgated, pairs: int, window_s: float) -> tuple[Seen, Seen]:
    """Windows in turn: without the load, with it."""
    quiet, loaded = Seen(), Seen()
    with grpc.insecure_channel(f"unix:{daemon.socket}") as channel:
        ask = clock_pb2_grpc.ClockStub(channel).GetReading
        for _ in range(pairs):
            time.sleep(_SETTLE_S)
            _watch(ask, quiet, window_s)
            with _loading(daemon.socket):
                time.sleep(_SETTLE_S)
                _watch(ask, loaded, window_s)
    return quiet, loaded


def lateness_ms(windows: list[list[int]], cycle_s: float) -> list[float]:
    """By how much each cycle was behind its beat, ms; a beat that was skipped counts as a cycle of one interval.

    The beats are those of one grid: its phase is where the stamps begin, after the widest gap between their phases.
    """
    interval_ns = round(cycle_s * _NS_PER_S)
    phases = sorted(stamp % interval_ns for window in windows for stamp in window)
    gaps = [(later - earlier, later) for earlier, later in pairwise((*phases, phases[0] + interval_ns))]
    phase = max(gaps)[1]
    late = [(stamp - phase) % interval_ns / 1e6 for window in windows for stamp in window]
    for window in windows:
        for before, after in pairwise(window):
            skipped = round((after - before) / interval_ns) - 1
            late += [1000 * cycle_s] * max(0, skipped)
    return late


def _print(what: str, without: list[float], under: list[float]) -> None:
    first, second = quantiles(without, n=100), quantiles(under, n=100)
    print(
        f"  {what}: p99 {first[98]:.2f} ms without the load, {second[98]:.2f} ms with it, ratio "
        f"{second[98] / first[98]:.2f}; p50 {first[49]:.2f} and {second[49]:.2f} ms; most "
        f"{max(without):.1f} and {max(under):.1f} ms; {len(without)} and {len(under)} samples",
        flush=True,
    )


def _watch(ask: "grpc.UnaryUnaryMultiCallable[clock_pb2.GetReadingRequest, clock_pb2.GetReadingResponse]", seen: Seen,
           window_s: float) -> None:  # fmt: skip
    stamps: dict[int, int] = {}
    due_s = time.monotonic() + window_s
    while time.monotonic() < due_s:
        began_ns = time.perf_counter_ns()
        reading = ask(clock_pb2.GetReadingRequest(), timeout=10).reading
        seen.took_ms.append((time.perf_counter_ns() - began_ns) / 1e6)
        stamps[reading.sequence] = reading.as_of_boot_ns
        time.sleep(_ASK_EVERY_S)
    seen.cycles.append(list(stamps.values()))


@contextmanager
def _daemon(folder: Path, ceiling: int, cycle_s: float) -> Iterator[Clockgated]:
    recording = folder / "recorded.jsonl"
    recording.write_text('{"after_s": 0, "bound_ns": 200000, "identity": "ntp:192.0.2.1", "stratum": 2}\n', "utf-8")
    text = toml(
        folder,
        clock=f'source = "recorded"\npoll_interval_s = {cycle_s}\nsync_cycles = 1',
        extra=f'[recorded]\nfile = "{recording}"',
    )
    with clockgated(folder, text.replace("[api]\n", f"[api]\nmax_streams = {ceiling}\n")) as running:
        yield running


@contextmanager
def _loading(socket: Path) -> Iterator[None]:
    line = [sys.executable, __file__, "--be-the-load", str(socket)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as load:
        assert load.stdout is not None
        load.stdout.readline()  # every stream was asked for
        yield
        load.terminate()


async def _load(socket: str) -> None:
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(f"unix:{socket}", options=options) for _ in range(CONNECTIONS)]
    stubs: list[Any] = [clock_pb2_grpc.ClockStub(channel) for channel in channels]  # type: ignore[arg-type]  # the stubs know no aio

    async def read(number: int) -> None:
        try:
            async for _ in stubs[number % CONNECTIONS].WatchReadings(clock_pb2.WatchReadingsRequest()):
                pass
        except grpc.RpcError:
            return  # refused, or the end

    reading = [asyncio.create_task(read(number)) for number in range(STREAMS)]
    await asyncio.sleep(1)
    print(sum(one.done() for one in reading), "of", STREAMS, "refused so far", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(main())
