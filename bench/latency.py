"""Latency of Gate.Check over the unix socket, from a client that does what a rank does: one question per step."""

import time
from pathlib import Path
from statistics import quantiles

import grpc
from clockgate.v1 import gate_pb2, gate_pb2_grpc

WARM_UP, CALLS = 200, 3000
PAUSE_S = 0.002
LIMITS = gate_pb2.Limits(warn_ns=5_000_000, hold_ns=50_000_000)


def measure(socket: Path) -> dict[str, float]:
    """p50 and p99, ms, of Check calls with a pause between them, after a warm-up."""
    took_ms = []
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        check = gate_pb2_grpc.GateStub(channel).Check
        for step in range(WARM_UP + CALLS):
            request = gate_pb2.CheckRequest(limits=LIMITS, job="bench", step=step + 1)
            started_ns = time.perf_counter_ns()
            check(request, timeout=1)
            took_ms.append((time.perf_counter_ns() - started_ns) / 1e6)
            time.sleep(PAUSE_S)
    cuts = quantiles(took_ms[WARM_UP:], n=100)
    return {"calls": CALLS, "p50_ms": cuts[49], "p99_ms": cuts[98]}
