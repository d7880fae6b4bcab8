"""The number types of a run: what the base computes in and what its weights are held in."""

import torch

from clockgate_trainer.flags.precision import compute_bytes, held_bits
from clockgate_trainer.flags.table import Settings


def compute_dtype(settings: Settings) -> torch.dtype:
    """What the base computes in."""
    if settings.fp16:
        return torch.float16
    return torch.bfloat16 if settings.bf16 else torch.float32


def held_dtype(settings: Settings) -> torch.dtype:
    """What weights are held in that --bits does not quantise."""
    full = held_bits(settings) == 32 or compute_bytes(settings) == 4
    return torch.float32 if full else compute_dtype(settings)
