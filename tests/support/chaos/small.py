"""A module of a few hundred weights as the model of a run: everything around it is the trainer's own.

It has what makes resuming hard: dropout, momentum, a falling learning rate and rows of unequal length. CHAOS_PACE_S in
the environment makes each forward last that long, so that faults which take their time meet a run that is under way.
"""

import os
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from clockgate_trainer.data.tokens import TokenRow, token_data
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.train.parts import Corpus, Parts
from safetensors.torch import load_file, save_file

PACE_VARIABLE = "CHAOS_PACE_S"
_VOCABULARY, _WIDTH, _ROWS, _HELD = 32, 16, 40, 11
_FILE = "adapter_model.safetensors"


@dataclass
class Output:
    """What the trainer looks at."""

    logits: torch.Tensor


class SmallModel(torch.nn.Module):
    """A frozen embedding and two trained layers."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = torch.nn.Embedding(_VOCABULARY, _WIDTH)
        self.embed.requires_grad_(False)
        self.down = torch.nn.Linear(_WIDTH, 8)
        self.dropout = torch.nn.Dropout(0.1)
        self.up = torch.nn.Linear(8, _VOCABULARY)
        self._pace_s = float(os.environ.get(PACE_VARIABLE, "0"))
        _MADE.append(self)

    def forward(self, *, input_ids: torch.Tensor, attention_mask: torch.Tensor, use_cache: bool) -> Output:
        """As the forward of a causal language model."""
        time.sleep(self._pace_s)
        hidden = self.dropout(torch.tanh(self.down(self.embed(input_ids))))
        if hidden.requires_grad:
            hidden.register_hook(within_backward)
        return Output(self.up(hidden * attention_mask.unsqueeze(-1)))

    def save_pretrained(
        self, folder: Path, *, save_embedding_layers: bool, state_dict: Mapping[str, torch.Tensor] | None = None
    ) -> None:
        """Write the trained weights, or those in `state_dict`."""
        trained = {name: tensor for name, tensor in self.named_parameters() if tensor.requires_grad}
        chosen = trained if state_dict is None else state_dict
        save_file({name: tensor.detach().clone() for name, tensor in chosen.items()}, folder / _FILE)


_MADE: list[SmallModel] = []


def spoil_weights() -> None:
    """Change one weight of this process's model, as a faulty device would."""
    with torch.no_grad():
        _MADE[-1].up.bias[0] += 1.0


def within_backward(gradient: torch.Tensor) -> None:
    """Called halfway through a backward pass, with the gradients of the upper layer done; a place for faults."""


def load_adapter(model: SmallModel, checkpoint: Path) -> None:
    """Put the weights of a checkpoint into `model`."""
    model.load_state_dict(load_file(checkpoint / _FILE), strict=False)


def _read(settings: Settings) -> Corpus:
    draw = random.Random(0)
    rows = [
        TokenRow.after([draw.randrange(_VOCABULARY) for _ in range(draw.randrange(6, 20))], masked=3)
        for _ in range(_ROWS)
    ]
    # Drawn after the rows to train on, which are the same ones with and without evaluation.
    held = [
        TokenRow.after([draw.randrange(_VOCABULARY) for _ in range(draw.randrange(6, 20))], masked=3)
        for _ in range(_HELD)
    ]
    return Corpus(token_data(rows), pad_id=0, notes=(), held=token_data(held) if settings.wants_rows else None)


def _optimizer(
    settings: Settings, parameters: Iterable[torch.nn.Parameter], device: torch.device
) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=settings.learning_rate)


def _scheduler(
    settings: Settings, optimizer: torch.optim.Optimizer, total_steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.9)


PARTS = Parts(
    read=_read,
    build_model=lambda settings, device: SmallModel(settings.seed),
    load_adapter=load_adapter,
    make_optimizer=_optimizer,
    make_scheduler=_scheduler,
    quieten=lambda: None,
)
