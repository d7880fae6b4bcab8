"""The rows of a run in their order, as steps and batches: what the training loop reads.

Without packing a row is one sample. With it a row holds as many samples as fit into `pack_length` tokens, and batch
sizes and the cursor count such rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from clockgate_trainer.data.collate import Batch, collate, collate_packed
from clockgate_trainer.data.order import (
    Cursor,
    Row,
    Split,
    StepRows,
    cursor_digest,
    epoch_order,
    grouped_order,
    rows_for,
)
from clockgate_trainer.data.packing import pack
from clockgate_trainer.data.tokens import TokenData


@dataclass(frozen=True)
class Arrangement:
    """What decides the order. `pack_length` is the tokens of a packed row, None without packing."""

    seed: int
    group_by_length: bool = False
    pack_length: int | None = None


@dataclass
class Feed:
    """Data in an arrangement. Equal on all ranks; keeps no position of its own."""

    data: TokenData
    pad_id: int
    arrangement: Arrangement
    _epoch: int | None = field(default=None, init=False)
    _rows: Sequence[Row] = field(default=(), init=False)
    _rows_per_epoch: int | None = field(default=None, init=False)

    def rows(self, epoch: int) -> Sequence[Row]:
        """All rows of an epoch, in order. Raises ConfigError when a sample is longer than a packed row."""
        if epoch != self._epoch:
            self._rows = _arrange(self.data, self.arrangement, epoch)
            self._epoch = epoch
        return self._rows

    def rows_per_epoch(self) -> int:
        """Rows of every epoch: with packing their number depends on lengths, and not on order."""
        if self._rows_per_epoch is None:
            self._rows_per_epoch = len(self.data) if self.arrangement.pack_length is None else len(self.rows(0))
        return self._rows_per_epoch

    def step(self, cursor: Cursor, split: Split, rank: int) -> StepRows:
        """The rows of the step that begins at `cursor`."""
        return rows_for(cursor, self.rows(cursor.epoch), split=split, rank=rank)

    def batches(self, step: StepRows) -> list[Batch]:
        """The micro-batches of a step, on the host."""
        return [self.batch(micro) for micro in step.micro_batches]

    def batch(self, rows: Sequence[Row | None]) -> Batch:
        """One micro-batch of these rows, on the host; None is a padding row."""
        samples = [None if row is None else [self.data.rows[sample] for sample in row] for row in rows]
        if self.arrangement.pack_length is not None:
            return collate_packed(samples, self.pad_id, self.arrangement.pack_length)
        return collate([None if row is None else row[0] for row in samples], self.pad_id)

    def heaviest(self, rows: int) -> Batch:
        """A micro-batch of `rows` rows that takes as much memory as any."""
        width = self.arrangement.pack_length
        longest = self.data.lengths.argsort(kind="stable")[::-1][:rows].tolist()
        picked: list[Row | None] = [(sample,) for sample in longest] + [None] * (rows - len(longest))
        if width is not None:
            picked = [*self.rows(0)[:rows], *[None] * rows][:rows]
        return self.batch(picked)

    def smallest(self) -> Batch:
        """A micro-batch of one pad token, which any device that holds the model has room for."""
        if self.arrangement.pack_length is not None:
            return collate_packed([None], self.pad_id, 1)
        return collate([None], self.pad_id)

    def label_tokens(self, step: StepRows) -> int:
        """Tokens that the loss of a step is computed on, over all ranks."""
        return int(self.data.label_counts[list(step.everyone)].sum())

    def tokens(self, step: StepRows) -> int:
        """Tokens of a step over all ranks, padding left out."""
        return int(self.data.lengths[list(step.everyone)].sum())

    def epochs_done(self, cursor: Cursor) -> float:
        """Passes over the data that lie behind `cursor`."""
        return cursor.epoch + cursor.row / self.rows_per_epoch()

    def digest(self, cursor: Cursor) -> int:
        """A number that is equal on two ranks exactly when they are about to read the same rows."""
        return cursor_digest(cursor, self.arrangement.seed, f"{self.data.fingerprint}:{self.arrangement}")


def _arrange(data: TokenData, arrangement: Arrangement, epoch: int) -> Sequence[Row]:
    seed, lengths = arrangement.seed, data.lengths.tolist()
    if arrangement.pack_length is not None:
        packed = pack(epoch_order(seed, epoch, len(data)), lengths, arrangement.pack_length)
        return [packed[place] for place in epoch_order(seed, epoch, len(packed), ":packs")]
    order = grouped_order(seed, epoch, lengths) if arrangement.group_by_length else epoch_order(seed, epoch, len(data))
    return [(row,) for row in order]
