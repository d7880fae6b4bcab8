"""Which rows an optimizer step is made of. Pure: a function of seed, cursor and the way the batch is split.

Invariant: the order of rows depends on (seed, epoch, number of rows) alone, and the cursor counts rows. So ranks,
micro-batch size and accumulation can change between two runs without a row being skipped or seen twice.

A step never crosses the end of an epoch. The last step of an epoch has fewer rows: whole micro-batches that would be
empty are left out on all ranks alike, and the last one is filled up with padding, so all ranks run the same number.
"""

import hashlib
import math
import random
from dataclasses import dataclass
from functools import lru_cache

_DIGEST_BYTES = 8


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


@dataclass(frozen=True)
class StepRows:
    """The rows of one optimizer step.

    `micro_batches` holds one rank's row indexes, None for a padding row; their number is equal on all ranks.
    `everyone` is the rows of all ranks; `after` is the cursor once the step is done.
    """

    micro_batches: tuple[tuple[int | None, ...], ...]
    everyone: tuple[int, ...]
    after: Cursor


@lru_cache(maxsize=2)
def epoch_order(seed: int, epoch: int, rows: int) -> tuple[int, ...]:
    """A permutation of range(rows).

    Rows are sorted by one `random()` number each: that sequence is promised to stay the same between Python versions,
    which `shuffle` is not.
    """
    draw = random.Random(f"{seed}:{epoch}")
    keys = [draw.random() for _ in range(rows)]
    return tuple(sorted(range(rows), key=keys.__getitem__))


def rows_for(cursor: Cursor, *, seed: int, rows: int, split: Split, rank: int) -> StepRows:
    """The rows of the step that starts at `cursor`, as `rank` sees it. `cursor.row` is below `rows`."""
    order = epoch_order(seed, cursor.epoch, rows)
    everyone = order[cursor.row : cursor.row + split.rows_per_step]
    per_round = split.world * split.micro_batch
    rounds = math.ceil(len(everyone) / per_round)
    padded: tuple[int | None, ...] = (*everyone, *(None,) * (rounds * per_round - len(everyone)))
    starts = (round_ * per_round + rank * split.micro_batch for round_ in range(rounds))
    mine = tuple(padded[start : start + split.micro_batch] for start in starts)
    done = cursor.row + len(everyone)
    after = Cursor(cursor.epoch + 1, 0) if done >= rows else Cursor(cursor.epoch, done)
    return StepRows(mine, everyone, after)


def steps_for_epochs(epochs: float, rows: int, split: Split) -> int:
    """Optimizer steps that `epochs` passes over the data take, at least 1."""
    whole, part = divmod(epochs, 1)
    per_epoch = math.ceil(rows / split.rows_per_step)
    return max(1, int(whole) * per_epoch + math.ceil(part * per_epoch))


def cursor_digest(cursor: Cursor, seed: int, fingerprint: str) -> int:
    """A number from 0 to 2^63 - 1 that is equal on two ranks exactly when they are about to read the same rows."""
    text = f"{fingerprint}:{seed}:{cursor.epoch}:{cursor.row}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:_DIGEST_BYTES], "big") >> 1
