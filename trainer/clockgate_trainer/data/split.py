"""Rows held out of training for evaluation, as qlora.py holds them out. Pure.

Nothing is held out unless it is asked for, and no rows are ever taken away at random without a seed.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

SEED = 42


def hold_out(rows: int, wanted: int, seed: int = SEED) -> tuple[list[int], list[int]]:
    """Row numbers to train on and to evaluate on; the latter are `wanted`, fewer than `rows`.

    The draw is that of `datasets.Dataset.train_test_split(test_size=wanted, shuffle=True, seed=seed)`.
    """
    drawn = np.random.default_rng(seed).permutation(rows)
    return drawn[wanted:].tolist(), drawn[:wanted].tolist()


def left_to_train(sizes: Sequence[int], held: int) -> list[list[int]]:
    """The rows of each set that are left when `held` of all rows are held out; all of them when that would be all.

    Drawn from the rows of all sets before they are mixed, so that no set's repeated rows come back into training.
    """
    if not 0 < held < sum(sizes):
        return [list(range(size)) for size in sizes]
    left: list[list[int]] = [[] for _ in sizes]
    for place, row in _placed(hold_out(sum(sizes), held)[0], sizes):
        left[place].append(row)
    return left


def left_to_evaluate(sizes: Sequence[int], held: int, limit: int | None = None) -> list[list[int]]:
    """The rows of each set that `left_to_train` leaves out, of which the first `limit` that were drawn; none when that
    would be all rows.
    """
    kept: list[list[int]] = [[] for _ in sizes]
    if 0 < held < sum(sizes):
        for place, row in _placed(hold_out(sum(sizes), held)[1][:limit], sizes):
            kept[place].append(row)
    return kept


def _placed(rows: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The set that each row of all sets laid end to end is in, and its number there."""
    starts = [0, *accumulate(sizes)]
    for row in rows:
        place = bisect_right(starts, row) - 1
        yield place, row - starts[place]
