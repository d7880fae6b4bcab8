"""Optimizer and learning-rate schedule by qlora.py's names."""

import math
from collections.abc import Iterable

import bitsandbytes as bnb
import torch
from transformers import get_scheduler

from clockgate_trainer.flags.table import Settings


def make_optimizer(
    settings: Settings, parameters: Iterable[torch.nn.Parameter], device: torch.device
) -> torch.optim.Optimizer:
    """AdamW over the adapter. Paging needs CUDA; elsewhere the paged ones are the same arithmetic unpaged."""
    betas = (settings.adam_beta1, settings.adam_beta2)
    if settings.optim == "adamw_torch":
        return torch.optim.AdamW(
            parameters,
            lr=settings.learning_rate,
            betas=betas,
            eps=settings.adam_epsilon,
            weight_decay=settings.weight_decay,
        )
    optimizer: torch.optim.Optimizer = bnb.optim.AdamW(
        parameters,
        lr=settings.learning_rate,
        betas=betas,
        eps=settings.adam_epsilon,
        weight_decay=settings.weight_decay,
        optim_bits=8 if settings.optim.endswith("8bit") else 32,
        is_paged=settings.optim.startswith("paged") and device.type == "cuda",
    )
    return optimizer


def make_scheduler(
    settings: Settings, optimizer: torch.optim.Optimizer, total_steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """The schedule over `total_steps` optimizer steps."""
    warm_up = settings.warmup_steps or math.ceil(total_steps * settings.warmup_ratio)
    scheduler: torch.optim.lr_scheduler.LRScheduler = get_scheduler(
        settings.lr_scheduler_type, optimizer, num_warmup_steps=warm_up, num_training_steps=total_steps
    )
    return scheduler
