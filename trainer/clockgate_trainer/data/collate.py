"""Token rows to the tensors of one micro-batch.

The attention mask follows from lengths and never from the pad id: where the pad id is also the end mark, masking by id
would hide real end marks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from clockgate_trainer.data.tokens import IGNORED, TokenRow


@dataclass(frozen=True)
class Batch:
    """One micro-batch, rows x tokens, padded on the right to its longest row."""

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    labels: torch.Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same batch on `device`."""
        return Batch(self.input_ids.to(device), self.attention_mask.to(device), self.labels.to(device))


def collate(rows: Sequence[TokenRow | None], pad_id: int) -> Batch:
    """Make a batch; None is a padding row, which attends to one pad token and teaches nothing."""
    width = max((len(row.input_ids) for row in rows if row is not None), default=1)
    input_ids = torch.full((len(rows), width), pad_id, dtype=torch.long)
    attention_mask = torch.zeros((len(rows), width), dtype=torch.long)
    labels = torch.full((len(rows), width), IGNORED, dtype=torch.long)
    for place, row in enumerate(rows):
        # A row that attends to nothing would give NaN in softmax, on a rank whose rows are all padding too.
        length = 1 if row is None else len(row.input_ids)
        attention_mask[place, :length] = 1
        if row is not None:
            input_ids[place, :length] = torch.tensor(row.input_ids)
            labels[place, :length] = torch.tensor(row.labels)
    return Batch(input_ids, attention_mask, labels)
