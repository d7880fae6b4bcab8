"""Optimizer and learning-rate schedule by qlora.py's names."""

import math
from collections.abc import Iterable
from typing import Any

import bitsandbytes as bnb
import torch
from transformers import get_scheduler

from clockgate_trainer.flags.optimizers import OPTIMIZERS
from clockgate_trainer.flags.table import Settings


def make_optimizer(
    settings: Settings, parameters: Iterable[torch.nn.Parameter], device: torch.device
) -> torch.optim.Optimizer:
    """AdamW over what is trained. Paging needs CUDA; elsewhere the paged ones are the same arithmetic unpaged.

    Of an 8-bit one bitsandbytes keeps the moments of tensors below 4,096 values in 32 bits.
    """
    kind = OPTIMIZERS[settings.optim]
    rates: dict[str, Any] = {
        "lr": settings.learning_rate,
        "betas": (settings.adam_beta1, settings.adam_beta2),
        "eps": settings.adam_epsilon,
        "weight_decay": settings.weight_decay,
    }
    trained: Any = _groups(parameters) if settings.full_finetune and settings.weight_decay else parameters
    if kind.library == "torch":
        return torch.optim.AdamW(trained, fused=kind.fused or None, **rates)
    paged = kind.paged and device.type == "cuda"
    optimizer: torch.optim.Optimizer = bnb.optim.AdamW(trained, optim_bits=kind.bits, is_paged=paged, **rates)
    return optimizer


def _groups(parameters: Iterable[torch.nn.Parameter]) -> list[dict[str, object]]:
    """Vectors, which are norms and biases, do not decay: so transformers has it."""
    everyone = list(parameters)
    return [
        {"params": [each for each in everyone if each.ndim > 1]},
        {"params": [each for each in everyone if each.ndim <= 1], "weight_decay": 0.0},
    ]


def make_scheduler(
    settings: Settings, optimizer: torch.optim.Optimizer, total_steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """The schedule over `total_steps` optimizer steps."""
    warm_up = settings.warmup_steps or math.ceil(total_steps * settings.warmup_ratio)
    scheduler: torch.optim.lr_scheduler.LRScheduler = get_scheduler(
        settings.lr_scheduler_type, optimizer, num_warmup_steps=warm_up, num_training_steps=total_steps
    )
    return scheduler
