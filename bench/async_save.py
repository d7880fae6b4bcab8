"""What saving costs training: windows of steps without a save, with one, and with one in the background, in turn.

One rank with one thread trains a module, on the CPU unless told otherwise, so that a core is left for the writer, as on
a machine whose training runs on GPUs. All windows run in one process on the same data; a window with a save lasts until
the checkpoint is committed. Run by itself or by `make bench`.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch
from clockgate_trainer.checkpoint.save import Store
from clockgate_trainer.data.order import Cursor
from clockgate_trainer.gate.gate import ClockGate, GateSettings
from clockgate_trainer.gate.model import ABSENT, Decision, Limits
from clockgate_trainer.gate.policy import OnUnknown
from clockgate_trainer.gate.sidecar import NullSidecar
from clockgate_trainer.gate.vote import SoloVote
from clockgate_trainer.train import rng
from clockgate_trainer.train.report import Standing
from clockgate_trainer.train.saving import Position, Saver
from clockgate_trainer.train.trained import Trained
from safetensors.torch import save_file
from torch import nn
from torch.amp import GradScaler

LIMITS = Limits(warn_ns=5_000_000, hold_ns=50_000_000)
WIDTH, DEPTH, ROWS = 512, 8, 64
MODES = ("none", "sync", "async")


class Adapter(nn.Module):
    """Layers that are all trained and saved."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)]
        self.layers = nn.Sequential(*layers)

    def write(self, folder: Path, copies: Mapping[str, torch.Tensor] | None) -> None:
        """Write the weights, or copies of them."""
        tensors = dict(self.named_parameters()) if copies is None else dict(copies)
        save_file({name: tensor.detach() for name, tensor in tensors.items()}, folder / "adapter_model.safetensors")


class Job:
    """One training job that saves to `folder` in every mode."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        self.device = device
        self.model = Adapter().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.rows = torch.randn(ROWS, WIDTH, device=device)
        settings = GateSettings(LIMITS, OnUnknown.WARN)
        self.gate = ClockGate(SoloVote(), NullSidecar(), settings, lambda name, fields: None)
        self.savers = {mode: self._saver(folder, mode) for mode in MODES[1:]}
        self.step = 0

    def _saver(self, folder: Path, mode: str) -> Saver:
        return Saver(
            Store(folder / mode, 0, 1, save_total_limit=2),
            self.gate,
            lambda own: [own],
            Standing(),
            Trained(
                self.model,
                self.optimizer,
                torch.optim.lr_scheduler.ConstantLR(self.optimizer),
                GradScaler(self.device.type, enabled=False),
                self.model.write,
            ),
            identity={},
            async_save=mode == "async",
        )

    def window(self, steps: int, mode: str) -> tuple[float, float]:
        """Duration of `steps` steps with a save after the first, and of the longest of them, both in ms."""
        took_ms = []
        for number in range(steps):
            started_ns = time.perf_counter_ns()
            decision = self._train()
            if mode in self.savers:
                saver = self.savers[mode]
                saver.after_step(decision, 1.0, 1)
                if number == 0:
                    saver.save(Position(self.step, Cursor(0, self.step), rng.capture(self.device)), decision)
                if number == steps - 1:
                    saver.drain()
            took_ms.append((time.perf_counter_ns() - started_ns) / 1e6)
        return sum(took_ms), max(took_ms)

    def _train(self) -> Decision:
        self.step += 1
        self.gate.begin(self.step, batch=1, cursor_digest=0, last_step_ns=ABSENT)
        loss = self.model.layers(self.rows).square().mean()
        decision = self.gate.settle()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return decision


def measure(rounds: int, steps: int, device: str = "cpu") -> dict[str, Any]:
    """Medians over `rounds` rounds of one window in each mode; the order turns from round to round."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    totals: dict[str, list[float]] = {mode: [] for mode in MODES}
    longest: dict[str, list[float]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory(prefix="clockgate-bench-", dir=".") as name:
        job = Job(Path(name), torch.device(device))
        for mode in MODES:
            job.window(steps, mode)
        for turn in range(rounds):
            for place in range(len(MODES)):
                mode = MODES[(turn + place) % len(MODES)]
                total_ms, longest_ms = job.window(steps, mode)
                totals[mode].append(total_ms)
                longest[mode].append(longest_ms)
        size = sum(path.stat().st_size for path in (Path(name) / "sync").glob("checkpoint-*/*")) / 2
    ratios = sorted(one / other for one, other in zip(totals["async"], totals["sync"], strict=True))
    added = {mode: median(map(float.__sub__, totals[mode], totals["none"])) for mode in MODES[1:]}
    return {
        "rounds": rounds,
        "steps": steps,
        "checkpoint_bytes": round(size),
        "step_ms": median(totals["none"]) / steps,
        "async_over_sync": median(ratios),
        "quartiles": [ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]],
        "added_ms": added,
        "cost_ratio": added["async"] / added["sync"],
        "longest_step_ms": {mode: median(longest[mode]) for mode in MODES},
    }


def sentence(figures: Mapping[str, Any]) -> str:
    """The figures for a person."""
    low, high = figures["quartiles"]
    added, longest = figures["added_ms"], figures["longest_step_ms"]
    return (
        f"{figures['steps']} steps of {figures['step_ms']:.1f} ms and a save of "
        f"{figures['checkpoint_bytes'] / 1e6:.0f} MB, asynchronous / synchronous: {figures['async_over_sync']:.3f} "
        f"(quartiles {low:.3f} to {high:.3f}, {figures['rounds']} interleaved rounds). The save adds "
        f"{added['sync']:.0f} ms, in the background {added['async']:.0f} ms: cost ratio {figures['cost_ratio']:.2f}. "
        f"The longest step takes {longest['sync']:.0f} ms, in the background {longest['async']:.0f} ms, without a save "
        f"{longest['none']:.0f} ms"
    )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=40, help="steps in a window")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options.rounds, options.steps, options.device)
    print(json.dumps(figures) if options.json else sentence(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
