"""The model as the loop uses it: loss, backward with or without gradient exchange, update. DDP where ranks are many."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from torch.amp import GradScaler
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
    """A model on one rank, which computes in `compute`.

    Gradients come out as the mean over all label tokens of all ranks: each rank's loss is a sum over its own tokens,
    scaled by ranks / tokens of all ranks, and DDP takes the mean over ranks. In float16, whose smallest numbers small
    gradients fall below, the loss is multiplied by the `loss_scale` too, until `unscale`; else that does nothing.
    """

    def __init__(self, model: Any, place: Place, device: torch.device, *, compute: torch.dtype) -> None:
        self.model = model
        self.device = device
        self._gpus = sorted({tensor.device.index for tensor in model.parameters() if tensor.device.type == "cuda"})
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._place = place
        self._compute = compute
        self.loss_scale = GradScaler(device.type, enabled=compute is torch.float16)
        with peers_needed():
            self._ddp = None if place.alone else _distribute(model, device)

    def loss_sum(self, batch: Batch) -> torch.Tensor:
        """Sum of the loss over the label tokens of `batch`, float32; 0 with a gradient of 0 when it has none.

        Raises PeerLostError when a rank is gone: DDP's first forward after its first backward is a collective.
        """
        moved = batch.to(self.device)
        forward = self.model if self._ddp is None else self._ddp
        with peers_needed(), self._autocast():
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
            loss = loss_sum * (self._place.world_size / max(label_tokens, 1))
            self.loss_scale.scale(loss).backward()  # type: ignore[no-untyped-call]

    def try_out(self, batch: Batch, state_bytes: float) -> None:
        """A forward and a backward without exchange, beside `state_bytes` that are only reserved; throw it away."""
        only = len(self._gpus) == 1 and self.device.type == "cuda"
        state = torch.empty(int(state_bytes) if only else 0, dtype=torch.uint8, device=self.device)
        with self.without_exchange():
            self.backward(self.loss_sum(batch), 1)
        del state
        self.drop_gradients()

    def spoilt(self, batch: Batch) -> torch.Tensor:
        """A loss that is no number and spoils the gradients of all ranks: of a rank that cannot do its share."""
        moved = batch.to(self.device)
        forward = self.model if self._ddp is None else self._ddp
        with peers_needed(), self._autocast():
            logits = forward(**inputs_of(moved, self.model), use_cache=False).logits
        loss: torch.Tensor = logits.float().sum() * float("nan")
        return loss

    def give_memory_back(self) -> None:
        """Let go of what the allocator keeps for later, so that other sizes can be had."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def without_exchange(self) -> AbstractContextManager[None]:
        """Within it gradients only add up on this rank: for all micro-batches of a step but the last."""
        return nullcontext() if self._ddp is None else self._ddp.no_sync()

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the loss scale out of the exchanged gradients, which are those of `optimizer`; once a step."""
        self.loss_scale.unscale_(optimizer)

    def adjust_scale(self) -> None:
        """After the step's `unscale`: halve the loss scale if it made a gradient overflow, raise it now and then."""
        self.loss_scale.update()

    def keep_scale(self) -> None:
        """In place of `adjust_scale`: the gradients say nothing about the loss scale."""
        if self.loss_scale.is_enabled():
            self.loss_scale.update(new_scale=self.loss_scale.get_scale())

    def scale(self) -> float | None:
        """The loss scale of the next step; None unless in float16."""
        return float(self.loss_scale.get_scale()) if self.loss_scale.is_enabled() else None

    def clip(self, max_norm: float) -> torch.Tensor:
        """Scale gradients down to `max_norm` (0: never); gives the norm that they had, equal on all ranks."""
        return torch.nn.utils.clip_grad_norm_(self.parameters, max_norm or float("inf"))

    def _autocast(self) -> AbstractContextManager[object]:
        narrow = self._compute is not torch.float32
        return torch.autocast(self.device.type, self._compute if narrow else torch.bfloat16, enabled=narrow)

    def peak_memory_bytes(self) -> tuple[int, ...]:
        """The most that was allocated on each GPU that holds a part of the model, in their order."""
        return tuple(torch.cuda.max_memory_allocated(device) for device in self._gpus)

    def drop_gradients(self) -> None:
        """Forget all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def total(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Sum of `parts` over this rank and all others, in float64, still on the device. Raises PeerLostError."""
        mine = torch.stack([part.detach() for part in parts]).double().sum()
        if not self._place.alone:
            with peers_needed():
                dist.all_reduce(mine)
        return mine


def read(*scalars: torch.Tensor) -> list[float]:
    """The values of scalars that may lie on several devices, for one wait for the first one's device."""
    return [float(value) for value in torch.stack([one.double().to(scalars[0].device) for one in scalars]).tolist()]


def _distribute(model: Any, device: torch.device) -> DistributedDataParallel:
    return DistributedDataParallel(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,
        # What is trained is used in every forward; looking for unused ones breaks checkpointed layers.
        find_unused_parameters=False,
        gradient_as_bucket_view=True,
        **_NO_BROADCAST,
    )
