"""What training changes, and what of it a checkpoint holds. Knows no model library."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.amp import GradScaler

# Beside the optimizer's own state.
_LOSS_SCALE = "loss_scale"


@dataclass(frozen=True)
class Trained:
    """What a checkpoint holds of training: its weights, and the state that follows them.

    `write` puts the trained weights into a folder, or copies of them that it is given. `loss_scale` counts with float16
    alone.
    """

    model: Any
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler
    loss_scale: GradScaler
    write: Callable[[Path, Mapping[str, torch.Tensor] | None], None]

    def weights(self) -> dict[str, torch.Tensor]:
        """The weights that training changes, by name."""
        return trained_tensors(self.model)

    def optimizer_state(self) -> dict[str, object]:
        """State of optimizer and loss scale: all that the next update needs beside weights and schedule."""
        state: dict[str, object] = dict(self.optimizer.state_dict())
        if self.loss_scale.is_enabled():
            state[_LOSS_SCALE] = self.loss_scale.state_dict()
        return state

    def load_optimizer_state(self, state: Mapping[str, object]) -> None:
        """Put back what `optimizer_state` gave."""
        rest = dict(state)
        scale = rest.pop(_LOSS_SCALE, None)
        self.optimizer.load_state_dict(rest)
        if isinstance(scale, dict):
            self.loss_scale.load_state_dict(scale)


def trained_tensors(model: Any) -> dict[str, torch.Tensor]:
    """The weights that training changes, by name."""
    return {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}


def count_parameters(model: Any) -> tuple[int, int]:
    """How many parameters training changes, and how many there are. Those in 4 bits are counted, and not their bytes.

    A packed weight knows the shape that it had.
    """
    counts = [(_count(parameter), parameter.requires_grad) for parameter in model.parameters()]
    return sum(count for count, trained in counts if trained), sum(count for count, _ in counts)


def _count(parameter: torch.Tensor) -> int:
    packed = getattr(parameter, "quant_state", None)
    return parameter.numel() if packed is None else math.prod(packed.shape)


def unsound(weights: Mapping[str, torch.Tensor]) -> str | None:
    """What is wrong with weights that nobody could go on from; None when all are finite."""
    broken = [name for name, tensor in weights.items() if not bool(torch.isfinite(tensor).all())]
    return None if not broken else f"{len(broken)} trained tensors hold values that are no numbers, such as {broken[0]}"
