"""Which rows an optimizer step is made of. Pure: a function of seed, cursor and the way the batch is split.

Invariant: the order of rows depends on (seed, epoch, lengths of the samples) alone, and the cursor counts rows. So
ranks, micro-batch size and accumulation can change between two runs without a row being skipped or seen twice.

A row is one sample, or with packing several. A step never crosses the end of an epoch. The last step of an epoch has
fewer rows: whole micro-batches that would be empty are left out on all ranks alike, and the last one is filled up with
padding, so all ranks run the same number.
"""

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

_DIGEST_BYTES = 8
# Rows sorted by length together, and of those, rows that stay neighbours. Not taken from the batch size, on which the
# order must not depend.
_BLOCK = 800
_NEIGHBOURS = 8

Row = tuple[int, ...]


@dataclass(frozen=True)
class Cursor:
    """Where training stands: `row` rows of epoch `epoch` (from 0) are done."""

    epoch: int = 0
    row: int = 0


@dataclass(frozen=True)
class Split:
    """How a step is divided: `accumulation` micro-batches of `micro_batch` rows on each of `world` ranks."""

    world: int
    micro_batch: int
    accumulation: int

    @property
    def rows_per_step(self) -> int:
        """Rows of a full optimizer step over all ranks."""
        return self.world * self.micro_batch * self.accumulation

    def smaller(self) -> "Split | None":
        """The same step in micro-batches of at most half as many rows; None when they have one row.

        A number of rows that does not halve without rest gives the largest micro-batch below that divides the step.
        """
        rows = self.micro_batch * self.accumulation
        fitting = (size for size in range(self.micro_batch // 2, 0, -1) if rows % size == 0)
        return next((Split(self.world, size, rows // size) for size in fitting), None)

    def in_micro_batches_of(self, size: int) -> "Split":
        """The same step in micro-batches of `size` rows; itself where that divides no step."""
        rows = self.micro_batch * self.accumulation
        return Split(self.world, size, rows // size) if size > 0 and rows % size == 0 else self


@dataclass(frozen=True)
class StepRows:
    """The rows of one optimizer step.

    `micro_batches` holds one rank's rows, None for a padding row; their number is equal on all ranks. `everyone` is the
    samples of all ranks; `after` is the cursor once the step is done.
    """

    micro_batches: tuple[tuple[Row | None, ...], ...]
    everyone: tuple[int, ...]
    after: Cursor


@lru_cache(maxsize=4)
def epoch_order(seed: int, epoch: int, rows: int, purpose: str = "") -> tuple[int, ...]:
    """A permutation of range(rows), another for each `purpose`.

    Rows are sorted by one `random()` number each: that sequence is promised to stay the same between Python versions,
    which `shuffle` is not.
    """
    draw = random.Random(f"{seed}:{epoch}{purpose}")
    keys = [draw.random() for _ in range(rows)]
    return tuple(sorted(range(rows), key=keys.__getitem__))


def grouped_order(seed: int, epoch: int, lengths: Sequence[int]) -> list[int]:
    """A permutation in which neighbours have about the same length, so that a micro-batch needs little padding.

    Blocks of the shuffled rows are sorted by length and cut into small groups, and the groups of all blocks are
    shuffled: without that the loss of an epoch would go up and down with the length of its rows.
    """
    shuffled = epoch_order(seed, epoch, len(lengths))
    groups = []
    for start in range(0, len(shuffled), _BLOCK):
        block = sorted(shuffled[start : start + _BLOCK], key=lengths.__getitem__)
        groups += [block[place : place + _NEIGHBOURS] for place in range(0, len(block), _NEIGHBOURS)]
    return [row for group in epoch_order(seed, epoch, len(groups), ":groups") for row in groups[group]]


def rows_for(cursor: Cursor, rows: Sequence[Row], *, split: Split, rank: int) -> StepRows:
    """The rows of the step that starts at `cursor`, as `rank` sees it.

    `rows` are those of epoch `cursor.epoch`, in order; `cursor.row` is below their number.
    """
    taken = rows[cursor.row : cursor.row + split.rows_per_step]
    per_round = split.world * split.micro_batch
    rounds = math.ceil(len(taken) / per_round)
    padded: tuple[Row | None, ...] = (*taken, *(None,) * (rounds * per_round - len(taken)))
    starts = (round_ * per_round + rank * split.micro_batch for round_ in range(rounds))
    mine = tuple(padded[start : start + split.micro_batch] for start in starts)
    done = cursor.row + len(taken)
    after = Cursor(cursor.epoch + 1, 0) if done >= len(rows) else Cursor(cursor.epoch, done)
    return StepRows(mine, tuple(sample for row in taken for sample in row), after)


def steps_for_epochs(epochs: float, rows: int, split: Split) -> int:
    """Optimizer steps that `epochs` passes over the data take, at least 1."""
    whole, part = divmod(epochs, 1)
    per_epoch = math.ceil(rows / split.rows_per_step)
    return max(1, int(whole) * per_epoch + math.ceil(part * per_epoch))


def samples_in_steps(steps: int, samples: int, split: Split) -> int:
    """Samples that `steps` steps see when each row is one sample, of which there are `samples`."""
    whole, part = divmod(steps, math.ceil(samples / split.rows_per_step))
    return whole * samples + min(samples, part * split.rows_per_step)


def steps_for_samples(wanted: int, samples: int, rows: int, split: Split) -> int:
    """Steps that see about `wanted` samples when `samples` of them are packed into `rows` rows, at least 1."""
    return steps_for_epochs(wanted / samples, rows, split)


def cursor_digest(cursor: Cursor, seed: int, fingerprint: str) -> int:
    """A number from 0 to 2^63 - 1 that is equal on two ranks exactly when they are about to read the same rows."""
    text = f"{fingerprint}:{seed}:{cursor.epoch}:{cursor.row}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:_DIGEST_BYTES], "big") >> 1
