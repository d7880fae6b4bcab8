"""Which rows each rank scores, in rounds of one batch a rank. Pure.

Batches are formed of all rows before they are dealt to ranks. So a batch holds the same rows, and gives the same
numbers to the last bit, at any number of ranks.
"""

import math
from collections.abc import Sequence

from clockgate_trainer.data.order import Row

Rows = tuple[Row | None, ...]

# Ranks meet after a few rounds, so that a signal on one of them is heard soon: some 64 times an evaluation, and never
# less often than this many rounds.
_MEETINGS = 64
_MOST_ROUNDS_APART = 16


def form_batches(rows: Sequence[Row], lengths: Sequence[int], size: int) -> list[Rows]:
    """All rows in batches of `size`, the last one filled up with padding rows; `lengths` counts the tokens of samples.
    Fewer rows than that are one batch.

    Long rows come first: neighbours need little padding, and what does not fit into memory shows at once.
    """
    size = max(min(size, len(rows)), 1)
    by_length = sorted(rows, key=lambda row: (-sum(lengths[sample] for sample in row), row))
    batches = [tuple(by_length[start : start + size]) for start in range(0, len(by_length), size)]
    return [(*batch, *(None,) * (size - len(batch))) for batch in batches]


def share(batches: Sequence[Rows], world: int, rank: int) -> list[Rows]:
    """The batches of one rank: every `world`th one. All ranks get as many; one of padding alone stands for none."""
    rounds = math.ceil(len(batches) / world)
    mine = list(batches[rank::world])
    return mine + [(None,) * len(batches[0])] * (rounds - len(mine)) if batches else []


def meets_after(done: int, rounds: int) -> bool:
    """Whether ranks meet once `done` of `rounds` rounds are behind them: after the first, the last, and some between.

    The first one proves that the largest batch fits on every rank.
    """
    apart = min(max(rounds // _MEETINGS, 1), _MOST_ROUNDS_APART)
    return done in (1, rounds) or done % apart == 0
