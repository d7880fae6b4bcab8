"""What a kind of model brings to a run: data, weights, optimizer. How a run lives and ends is the same for all kinds.

Knows no model library, so that a run of something small starts in a moment.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clockgate_trainer.data.tokens import TokenData
from clockgate_trainer.flags.table import Settings


@dataclass(frozen=True)
class Corpus:
    """Tokenized data, the id to pad with, and what a person should know about the data, one sentence each."""

    data: TokenData
    pad_id: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Parts:
    """Functions that every rank calls at the same points of a run.

    `read` finds what is wrong with data and model before any weights load. `build_model` gives a module that takes
    `input_ids`, `attention_mask`, `use_cache` and, where rows are packed, `position_ids`, returns an object with
    `logits`, and writes its trained weights by `save_pretrained(folder, save_embedding_layers=False)`; `load_adapter`
    puts those of a checkpoint's folder back. `make_scheduler` is given the number of optimizer steps. `quieten` stops
    progress bars. The first three raise ConfigError.
    """

    read: Callable[[Settings], Corpus]
    build_model: Callable[[Settings, torch.device], Any]
    load_adapter: Callable[[Any, Path], None]
    make_optimizer: Callable[[Settings, Iterable[torch.nn.Parameter], torch.device], torch.optim.Optimizer]
    make_scheduler: Callable[[Settings, torch.optim.Optimizer, int], torch.optim.lr_scheduler.LRScheduler]
    quieten: Callable[[], None]
