"""The random state of one rank: everything that a step draws from. Used to resume and to undo."""

import random
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

State = dict[str, Any]


def seed_everything(seed: int) -> None:
    """Start all generators from `seed`."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def capture(device: torch.device) -> State:
    """The state of all generators of this rank as tensors, numbers and lists (no pickled class)."""
    version, words, gauss = random.getstate()
    numpy_state: dict[str, Any] = dict(np.random.get_state(legacy=False))
    return {
        "python": [version, list(words), gauss],
        "numpy": {
            "key": numpy_state["state"]["key"].tolist(),
            "pos": int(numpy_state["state"]["pos"]),
            "has_gauss": int(numpy_state["has_gauss"]),
            "gauss": float(numpy_state["gauss"]),
        },
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "cuda_others": {number: torch.cuda.get_rng_state(number) for number in _others(device)},
    }


def restore(state: State, device: torch.device) -> None:
    """Put all generators back to `state`, made by `capture` on the same kind of device."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    saved = state["numpy"]
    key = np.array(saved["key"], dtype=np.uint32)
    np.random.set_state(("MT19937", key, saved["pos"], saved["has_gauss"], saved["gauss"]))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)
        for number, others in state["cuda_others"].items():
            torch.cuda.set_rng_state(others, number)


def _others(device: torch.device) -> list[int]:
    """CUDA devices beside `device` that layers of this process may draw dropout on: none among several ranks."""
    if device.type != "cuda" or dist.is_initialized():
        return []
    return [number for number in range(torch.cuda.device_count()) if number != device.index]
