"""What the gate, logs and metrics add to a real training step: windows with and without them, in turn, in one run.

    torchrun --nproc_per_node N bench/gated_training.py [--windows N] [--steps N] -- FLAGS OF clockgate-train

Model, data and optimizer are those of the flags, on GPUs under NCCL or on CPUs under gloo. After the windows it counts,
step by step, how often the host waits for the GPU, with torch's own synchronisation warnings. Rank 0 prints JSON.
"""

import argparse
import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

import torch
import torch.distributed as dist
from clockgate_trainer.data.order import Cursor
from clockgate_trainer.events import EventLog, MetricLog
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.gate.clocks import mono_ns
from clockgate_trainer.gate.gate import ClockGate
from clockgate_trainer.gate.model import ABSENT, Kind, StepVerdict
from clockgate_trainer.train.distributed import Meeting, join, prepare_torch, read_place
from clockgate_trainer.train.distributed import choose_device as device_of
from clockgate_trainer.train.gating import make_gate
from clockgate_trainer.train.homes import find_homes
from clockgate_trainer.train.network import Network, read
from clockgate_trainer.train.plan import Plan, make_plan
from clockgate_trainer.train.precision import compute_dtype
from clockgate_trainer.train.progress import StepReport
from clockgate_trainer.train.qlora import QLORA
from clockgate_trainer.train.report import Reporter, Standing

_WARM_UP_STEPS = 4


@dataclass
class Bench:
    """One rank's training, and how far it is. `told` counts steps for the gate, which wants them to rise.

    `host_ns` is how long each part of the gate and of the logs kept the host, the device busy or not.
    """

    plan: Plan
    network: Network
    optimizer: torch.optim.Optimizer
    gate: ClockGate
    reporter: Reporter
    rank: int
    cursor: Cursor = field(default_factory=Cursor)
    told: int = 0
    host_ns: dict[str, list[int]] = field(default_factory=dict)

    def step(self, *, gated: bool) -> tuple[int, int]:
        """One optimizer step; its duration, ns, and its tokens on all ranks."""
        started_ns = mono_ns()
        self.told += 1
        rows = self.plan.feed.step(self.cursor, self.plan.split, self.rank)
        label_tokens = self.plan.feed.label_tokens(rows)
        *early, last = self.plan.feed.batches(rows)
        losses = []
        for batch in early:
            with self.network.without_exchange():
                losses.append(self.network.loss_sum(batch))
                self.network.backward(losses[-1], label_tokens)
        if gated:
            with self._timed("begin"):
                digest = self.plan.feed.digest(self.cursor)
                self.gate.begin(self.told, batch=1 << 32 | 1, cursor_digest=digest, last_step_ns=ABSENT)
        losses.append(self.network.loss_sum(last))
        if gated:
            with self._timed("settle"):
                decision = self.gate.settle()
            if decision.step_verdict is not StepVerdict.PROCEED:
                raise RuntimeError("the gate did not say PROCEED: the figures would be of something else")
        self.network.backward(losses[-1], label_tokens)
        on_device = self.network.total(losses), self.network.clip(1.0)
        if gated:
            self.gate.ask_ahead(self.told + 1)
        loss, norm = read(*on_device)
        self.optimizer.step()
        self.network.drop_gradients()
        self.cursor = rows.after
        tokens = self.plan.feed.tokens(rows)
        if gated:
            with self._timed("report"):
                self._report(loss / max(label_tokens, 1), norm, tokens, label_tokens, mono_ns() - started_ns)
        return mono_ns() - started_ns, tokens

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started_ns = mono_ns()
        yield
        self.host_ns.setdefault(name, []).append(mono_ns() - started_ns)

    def _report(self, loss: float, norm: float, tokens: int, label_tokens: int, step_ns: int) -> None:
        self.reporter.step_done(
            StepReport(
                step=self.told,
                epoch=0.0,
                loss=loss,
                grad_norm=norm,
                learning_rate=0.0,
                tokens=tokens,
                label_tokens=label_tokens,
                step_ns=step_ns,
                held_ns=0,
                cluster_bound_ns=None,
                peak_memory_bytes=self.network.peak_memory_bytes(),
            )
        )

    def window(self, steps: int, *, gated: bool) -> float:
        """ns a token over `steps` steps, waits for the device included: packed rows differ in tokens."""
        took = [self.step(gated=gated) for _ in range(steps)]
        return sum(one[0] for one in took) / sum(one[1] for one in took)

    def waits(self, *, gated: bool) -> int:
        """How often torch makes the host wait for the GPU in one step."""
        if self.network.device.type != "cuda":
            return 0
        torch.cuda.set_sync_debug_mode("warn")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            self.step(gated=gated)
        torch.cuda.set_sync_debug_mode("default")
        return sum("synchroniz" in str(one.message) for one in told)


def make_bench(flags: Sequence[str]) -> Bench:
    """Meet the other ranks and load everything. A collective."""
    settings = parse(flags)
    place = read_place(os.environ)
    device = device_of(settings.device, place)
    prepare_torch(settings, place, device)
    join(settings, place, device)
    meeting = Meeting(place, settings.ddp_timeout)
    metrics = MetricLog(settings.output_dir) if place.leads else None
    reporter = Reporter(EventLog(settings.output_dir, place.rank), metrics, Standing())
    homes = find_homes(meeting, place, settings.output_dir)
    plan = make_plan(settings, place, meeting, reporter, QLORA.read, homes=homes)
    gate = make_gate(settings, place, meeting, os.environ, reporter)
    gate.launch_check()
    model = QLORA.build_model(settings, device)
    network = Network(model, place, device, compute=compute_dtype(settings))
    optimizer = QLORA.make_optimizer(settings, network.parameters, device)
    reporter.begin(10**9, settings.logging_steps)
    return Bench(plan, network, optimizer, gate, reporter, place.rank)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="what gate, logs and metrics add to a training step")
    parser.add_argument("--windows", type=int, default=10, help="pairs of windows")
    parser.add_argument("--steps", type=int, default=3, help="steps in a window")
    parser.add_argument("flags", nargs="+", help="flags of clockgate-train, after --")
    options = parser.parse_args()
    bench = make_bench(options.flags)
    for number in range(_WARM_UP_STEPS):
        bench.step(gated=bool(number % 2))
    times: dict[bool, list[float]] = {True: [], False: []}
    for pair in range(options.windows):
        # The order alternates, so that whatever the second window of a pair gains or loses falls out.
        for gated in (True, False) if pair % 2 else (False, True):
            times[gated].append(bench.window(options.steps, gated=gated))
    ratios = sorted(one / other for one, other in zip(times[True], times[False], strict=True))
    waits = {gated: [bench.waits(gated=gated) for _ in range(2)] for gated in (True, False)}
    bench.gate.agree(Kind.EXIT, bench.told)
    bench.gate.close()
    if bench.rank == 0:
        ranks = dist.get_world_size() if dist.is_initialized() else 1
        figures = {
            "ranks": ranks,
            "device": bench.network.device.type,
            "tokens_per_s_ungated": 1e9 / median(times[False]),
            "gated_over_ungated": median(ratios),
            "ratio_first_quartile": ratios[len(ratios) // 4],
            "ratio_third_quartile": ratios[3 * len(ratios) // 4],
            "pairs": len(ratios),
            "host_ms": {name: median(took) / 1e6 for name, took in bench.host_ns.items()},
            "waits_for_the_gpu_gated": waits[True],
            "waits_for_the_gpu_ungated": waits[False],
            "peak_memory_bytes": bench.network.peak_memory_bytes(),
        }
        print(json.dumps(figures), flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
