"""Token rows to the tensors of one micro-batch.

What a token attends to follows from lengths and never from the pad id: where the pad id is also the end mark, masking
by id would hide real end marks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from clockgate_trainer.data.tokens import IGNORED, TokenRow


@dataclass(frozen=True)
class Documents:
    """Where the samples of packed rows lie.

    `positions` (rows x width) counts tokens from each sample's start, padding too; `starts` (int32) holds the place of
    each first token, over all rows laid end to end, and the number of all tokens at the end.
    """

    positions: torch.Tensor
    starts: torch.Tensor

    def mask(self) -> torch.Tensor:
        """Which token (third axis) may attend to which (last): rows x 1 x width x width, true within a sample."""
        number = (self.positions == 0).cumsum(-1)
        same = number[:, None, :, None] == number[:, None, None, :]
        return same.tril()

    def to(self, device: torch.device) -> "Documents":
        """The same on `device`."""
        return Documents(self.positions.to(device), self.starts.to(device))


@dataclass(frozen=True)
class Batch:
    """One micro-batch, rows x tokens, padded on the right. `documents` is None unless rows are packed."""

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    labels: torch.Tensor
    documents: Documents | None = None

    def to(self, device: torch.device) -> "Batch":
        """The same batch on `device`."""
        moved = Batch(self.input_ids.to(device), self.attention_mask.to(device), self.labels.to(device))
        return moved if self.documents is None else replace(moved, documents=self.documents.to(device))


def collate(rows: Sequence[TokenRow | None], pad_id: int) -> Batch:
    """Make a batch as wide as its longest row; None is a padding row, which attends to one pad token."""
    width = max((len(row.input_ids) for row in rows if row is not None), default=1)
    batch = _blank(len(rows), width, pad_id)
    for place, row in enumerate(rows):
        # A row that attends to nothing would give NaN in softmax, on a rank whose rows are all padding too.
        length = 1 if row is None else _put(batch, place, 0, row)
        batch.attention_mask[place, :length] = 1
    return batch


def collate_packed(rows: Sequence[Sequence[TokenRow] | None], pad_id: int, width: int) -> Batch:
    """Make a batch of packed rows, `width` tokens wide whatever they hold; None is a padding row.

    The padding of a row is a document of its own, which teaches nothing.
    """
    batch = _blank(len(rows), width, pad_id)
    batch.attention_mask[:] = 1
    positions = np.zeros((len(rows), width), np.int64)
    starts: list[int] = []
    for place, samples in enumerate(rows):
        start = 0
        for sample in samples or ():
            starts.append(place * width + start)
            length = _put(batch, place, start, sample)
            positions[place, start : start + length] = np.arange(length)
            start += length
        if start < width:
            starts.append(place * width + start)
            positions[place, start:] = np.arange(width - start)
    starts.append(len(rows) * width)
    return replace(batch, documents=Documents(torch.from_numpy(positions), torch.tensor(starts, dtype=torch.int32)))


def _blank(rows: int, width: int, pad_id: int) -> Batch:
    return Batch(
        torch.full((rows, width), pad_id, dtype=torch.long),
        torch.zeros((rows, width), dtype=torch.long),
        torch.full((rows, width), IGNORED, dtype=torch.long),
    )


def _put(batch: Batch, place: int, start: int, row: TokenRow) -> int:
    """Write a row into the batch, and return how many tokens it has."""
    length = len(row.input_ids)
    batch.input_ids[place, start : start + length] = torch.from_numpy(row.input_ids.astype(np.int64))
    batch.labels[place, start : start + length] = torch.from_numpy(row.labels.astype(np.int64))
    return length
