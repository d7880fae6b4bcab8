"""The model as the loop uses it: loss, backward with or without gradient exchange, update. DDP where ranks are many."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from clockgate_trainer.data.collate import Batch
from clockgate_trainer.data.tokens import IGNORED
from clockgate_trainer.train.attention import inputs_of
from clockgate_trainer.train.distributed import Place, peers_needed

# Renamed between torch 2.11 and 2.13.
_NEW_NAME = "forward_sync_buffers"
_OLD_NAME = "broadcast_buffers"
# A broadcast of buffers in every forward would be a collective before the gate has answered.
_NO_BROADCAST: dict[str, Any] = {
    _NEW_NAME if _NEW_NAME in signature(DistributedDataParallel).parameters else _OLD_NAME: False
}


class Network:
    """A model with an adapter on one rank.

    Gradients come out as the mean over all label tokens of all ranks: each rank's loss is a sum over its own tokens,
    scaled by ranks / tokens of all ranks, and DDP takes the mean over ranks.
    """

    def __init__(self, model: Any, place: Place, device: torch.device, *, bf16: bool) -> None:
        self.model = model
        self.device = device
        self._gpus = sorted({tensor.device.index for tensor in model.parameters() if tensor.device.type == "cuda"})
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._place = place
        self._bf16 = bf16
        with peers_needed():
            self._ddp = None if place.alone else _distribute(model, device)

    def loss_sum(self, batch: Batch) -> torch.Tensor:
        """Sum of the loss over the label tokens of `batch`, float32; 0 with a gradient of 0 when it has none.

        Raises PeerLostError when a rank is gone: DDP's first forward after its first backward is a collective.
        """
        moved = batch.to(self.device)
        forward = self.model if self._ddp is None else self._ddp
        with peers_needed(), torch.autocast(self.device.type, torch.bfloat16, enabled=self._bf16):
            logits = forward(**inputs_of(moved, self.model), use_cache=False).logits
        predicted = logits[:, :-1].float().flatten(0, 1)
        # With split layers the head is on the last device.
        labels = moved.labels[:, 1:].flatten().to(predicted.device)
        return cross_entropy(predicted, labels, ignore_index=IGNORED, reduction="sum")

    def backward(self, loss_sum: torch.Tensor, label_tokens: int) -> None:
        """Add this loss to the gradients and, outside `without_exchange`, exchange them.

        `label_tokens` counts all ranks and micro-batches of the step. Raises PeerLostError when a rank is gone.
        """
        with peers_needed():
            (loss_sum * (self._place.world_size / max(label_tokens, 1))).backward()  # type: ignore[no-untyped-call]

    def without_exchange(self) -> AbstractContextManager[None]:
        """Within it gradients only add up on this rank: for all micro-batches of a step but the last."""
        return nullcontext() if self._ddp is None else self._ddp.no_sync()

    def clip(self, max_norm: float) -> float:
        """Scale gradients down to `max_norm` (0: never) and return the norm that they had, equal on all ranks."""
        limit = max_norm or float("inf")
        return float(torch.nn.utils.clip_grad_norm_(self.parameters, limit))

    def peak_memory_bytes(self) -> tuple[int, ...]:
        """The most that was allocated on each GPU that holds a part of the model, in their order."""
        return tuple(torch.cuda.max_memory_allocated(device) for device in self._gpus)

    def drop_gradients(self) -> None:
        """Forget all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def total(self, parts: Sequence[torch.Tensor]) -> float:
        """Sum of `parts` over this rank and all others, in float64. Raises PeerLostError."""
        mine = torch.stack([part.detach() for part in parts]).double().sum()
        if not self._place.alone:
            with peers_needed():
                dist.all_reduce(mine)
        return float(mine)


def _distribute(model: Any, device: torch.device) -> DistributedDataParallel:
    return DistributedDataParallel(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,
        # An adapter uses every parameter in every forward; looking for unused ones breaks checkpointed layers.
        find_unused_parameters=False,
        gradient_as_bucket_view=True,
        **_NO_BROADCAST,
    )
