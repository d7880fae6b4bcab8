"""The gate in a training loop of one's own: DDP, gradient accumulation, and a checkpoint every few steps.

    torchrun --standalone --nproc_per_node 2 examples/gated/ddp_loop.py

Trains a small network on CPUs. Start `clockgated` first, or name its socket with CLOCKGATE_ADDRESS; without a daemon
the ranks warn and go on (give time_sync_check="true" to demand one).
"""

import argparse
import logging
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from clockgate_trainer import ClockGate, Kind, SaveVerdict, StepVerdict
from torch import nn

ACCUMULATION, ROWS = 2, 8
STOPPED = 75


def train(
    gate: ClockGate, model: nn.parallel.DistributedDataParallel, steps: int, save_every: int, output_dir: Path
) -> int:
    """Train; returns the exit code: 0 when all steps are done, 75 when the gate stopped the ranks after a save."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    save_due = False
    if gate.launch_check().step_verdict is StepVerdict.STOP:
        return STOPPED
    for step in range(1, steps + 1):
        for _ in range(ACCUMULATION - 1):
            with model.no_sync():
                loss_of(model).backward()  # type: ignore[no-untyped-call]
        # The vote is under way while the last micro-batch is computed, and done before its gradients leave.
        gate.begin(step)
        loss = loss_of(model)
        decision = gate.settle()
        if decision.step_verdict is StepVerdict.STOP:
            # All ranks are here. No gradient of this step has been exchanged: the last finished step is what is saved.
            save(model, output_dir, step - 1)
            gate.agree(Kind.EXIT, step - 1)
            return STOPPED
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        save_due = save_due or step % save_every == 0
        if save_due and decision.save_verdict is not SaveVerdict.SKIP_SAVE:
            save(model, output_dir, step)
            save_due = False
    gate.agree(Kind.EXIT, steps)
    return 0


def loss_of(model: nn.parallel.DistributedDataParallel) -> torch.Tensor:
    """Learn to add: the loss of one random micro-batch."""
    rows = torch.rand(ROWS, 2)
    return nn.functional.mse_loss(model(rows).squeeze(1), rows.sum(1))


def save(model: nn.parallel.DistributedDataParallel, output_dir: Path, step: int) -> None:
    """Write the weights under a hidden name first: a rank that dies here leaves no half checkpoint."""
    if dist.get_rank() != 0:
        return
    output_dir.mkdir(parents=True, exist_ok=True)
    draft, final = output_dir / f".step-{step}.pt", output_dir / f"step-{step}.pt"
    torch.save(model.module.state_dict(), draft)
    draft.replace(final)


def main() -> int:
    """Train on this rank."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--save_every", type=int, default=5)
    parser.add_argument("--output_dir", type=Path, default=Path("runs/ddp-loop"))
    options = parser.parse_args()
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1)))
    gate = ClockGate.connect(job="ddp-loop")
    try:
        code = train(gate, model, options.steps, options.save_every, options.output_dir)
    finally:
        gate.close()
    dist.destroy_process_group()
    return code


if __name__ == "__main__":
    sys.exit(main())
