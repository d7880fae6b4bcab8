"""A model as evaluation uses it: forwards that teach nothing and leave nothing behind. Knows no other rank."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from clockgate_trainer.data.collate import Batch
from clockgate_trainer.data.tokens import IGNORED
from clockgate_trainer.train.attention import inputs_of


class Scorer:
    """Scores batches with `model` on `device`, computing in `compute` as training does."""

    def __init__(self, model: Any, device: torch.device, *, compute: torch.dtype) -> None:
        self._model = model
        self._device = device
        self._compute = compute
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._keeps_some = "logits_to_keep" in signature(inner.forward).parameters

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Within it nothing is learned, dropped out or recomputed; behind it the model is as it was before.

        4-bit layers stay as they are: they compute the same either way, and on some CPUs bitsandbytes would repack
        their weights in place for inference.
        """
        training = {module: module.training for module in self._model.modules()}
        for module in training:
            module.training = module.training and any(kind.__name__ == "Linear4bit" for kind in type(module).__mro__)
        try:
            with torch.no_grad():
                yield
        finally:
            for module, before in training.items():
                module.training = before

    def loss_of(self, batch: Batch) -> float:
        """The sum of the loss over the label tokens of `batch`, for use within `evaluating`.

        Row by row: a float32 copy of all logits would take twice their memory.
        """
        parts = [
            cross_entropy(row[:-1].float(), labels[1:].to(row.device), ignore_index=IGNORED, reduction="sum").double()
            for row, labels in zip(self._logits(batch), batch.labels, strict=True)
        ]
        return float(torch.stack(parts).sum())

    def scores_at(self, batch: Batch, places: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        """The logits of `tokens` (second axis) behind the token at `places[row]` of each row of `batch`, float32.

        For use within `evaluating`; `places` may leave out the last rows.
        """
        kept = sorted(set(places)) if self._keeps_some else range(batch.input_ids.shape[1])
        logits = self._logits(batch, kept)
        columns = {place: number for number, place in enumerate(kept)}
        picked = [logits[row, columns[place]] for row, place in enumerate(places)]
        return torch.stack(picked)[:, list(tokens)].float()

    def _logits(self, batch: Batch, places: Sequence[int] | None = None) -> torch.Tensor:
        """Rows x tokens x vocabulary; with `places` of these tokens alone, where the model can leave the others out."""
        arguments = inputs_of(batch.to(self._device), self._model)
        if places is not None and self._keeps_some:
            arguments["logits_to_keep"] = torch.tensor(places, device=self._device)
        narrow = self._compute is not torch.float32
        with torch.autocast(self._device.type, self._compute if narrow else torch.bfloat16, enabled=narrow):
            logits: torch.Tensor = self._model(**arguments, use_cache=False).logits
        return logits
