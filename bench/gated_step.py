"""One rank of the overhead measurement: a DDP job whose windows of steps alternate between gated and ungated.

Both kinds of window run in the same processes on the same data, in turn, so that the machine's drift falls out of the
ratio of neighbouring windows. Run by torchrun; rank 0 prints one line of JSON.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.distributed as dist
from clockgate_trainer.gate.address import resolve_address
from clockgate_trainer.gate.gate import ClockGate, GateSettings
from clockgate_trainer.gate.model import ABSENT, Kind, Limits, StepVerdict
from clockgate_trainer.gate.policy import OnUnknown
from clockgate_trainer.gate.sidecar import Sidecar
from clockgate_trainer.gate.vote import open_vote
from torch import nn

LIMITS = Limits(warn_ns=5_000_000, hold_ns=50_000_000)
WIDTH, DEPTH, ROWS = 1024, 4, 128
VOTES = 300


def window(model: nn.Module, rows: torch.Tensor, steps: int, first: int, gate: ClockGate | None) -> float:
    """Median duration, ms, of `steps` steps with or without the gate."""
    took_ms = []
    for step in range(first, first + steps):
        started_ns = time.perf_counter_ns()
        if gate is not None:
            gate.begin(step, batch=1 << 32 | 1, cursor_digest=0, last_step_ns=ABSENT)
        loss = model(rows).square().mean()
        if gate is not None and gate.settle().step_verdict is not StepVerdict.PROCEED:
            raise RuntimeError("the gate did not say PROCEED: the figures would be of something else")
        loss.backward()
        model.zero_grad()
        took_ms.append((time.perf_counter_ns() - started_ns) / 1e6)
    return median(took_ms)


def vote_alone(gate: ClockGate) -> float:
    """Median duration, ms, of a vote that nothing overlaps."""
    took_ms = []
    for _ in range(VOTES):
        started_ns = time.perf_counter_ns()
        gate.agree(Kind.EVAL, 0)
        took_ms.append((time.perf_counter_ns() - started_ns) / 1e6)
    return median(took_ms)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clock_daemon", required=True)
    parser.add_argument("--windows", type=int, default=20, help="pairs of windows")
    parser.add_argument("--steps", type=int, default=10, help="steps in a window")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    layers: list[nn.Module] = [nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    rows = torch.randn(ROWS, WIDTH)
    sidecar = Sidecar(resolve_address(options.clock_daemon, {}), LIMITS, job="bench", rank=rank)
    discard: Callable[..., None] = lambda *_: None  # noqa: E731
    gate = ClockGate(open_vote(60.0), sidecar, GateSettings(LIMITS, OnUnknown.HOLD), discard)
    gate.launch_check()
    window(model, rows, options.steps, 1, gate)
    gated: list[float] = []
    ungated: list[float] = []
    for pair in range(options.windows):
        first = 1 + (pair + 1) * options.steps
        # The order alternates too, so that whatever the second window of a pair gains or loses falls out.
        for with_gate in (True, False) if pair % 2 else (False, True):
            (gated if with_gate else ungated).append(
                window(model, rows, options.steps, first, gate if with_gate else None)
            )
    ratios = sorted(one / other for one, other in zip(gated, ungated, strict=True))
    vote_ms = vote_alone(gate)
    gate.agree(Kind.EXIT, 0)
    gate.close()
    if rank == 0:
        figures = {
            "ungated_step_ms": median(ungated),
            "gated_over_ungated": median(ratios),
            "ratio_first_quartile": ratios[len(ratios) // 4],
            "ratio_third_quartile": ratios[3 * len(ratios) // 4],
            "pairs": len(ratios),
            "vote_alone_ms": vote_ms,
        }
        print(json.dumps(figures), flush=True)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
