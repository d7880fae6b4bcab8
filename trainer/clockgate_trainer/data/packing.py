"""Samples to packed rows of one constant length. Pure.

Best fit decreasing: samples from long to short, each into the fullest row that still has room for it. Which samples
are of equal length is known only by their order in, so another order gives other neighbours, while the number of rows
depends on the lengths alone.
"""

from collections.abc import Sequence

from clockgate_trainer.errors import ConfigError


def pack(order: Sequence[int], lengths: Sequence[int], capacity: int) -> list[tuple[int, ...]]:
    """Rows of at most `capacity` tokens that together hold each sample of `order` once.

    `lengths` holds the tokens of every sample by its number. Raises ConfigError when one is longer than a row.
    """
    by_length = sorted(order, key=lengths.__getitem__, reverse=True)
    if by_length and lengths[by_length[0]] > capacity:
        raise ConfigError(
            f"--pack_length is {capacity} tokens and the longest sample has {lengths[by_length[0]]}: raise it, or "
            "lower --source_max_len or --target_max_len"
        )
    rows: list[list[int]] = []
    with_room: list[list[int]] = [[] for _ in range(capacity + 1)]
    # Bit n is set while some row has room for exactly n more tokens: the lowest bit from a length up is its best fit.
    rooms = 0
    for sample in by_length:
        length = lengths[sample]
        fitting = rooms >> length
        if fitting:
            room = length + (fitting & -fitting).bit_length() - 1
            row = with_room[room].pop()
            if not with_room[room]:
                rooms &= ~(1 << room)
        else:
            room, row = capacity, len(rows)
            rows.append([])
        rows[row].append(sample)
        left = room - length
        with_room[left].append(row)
        rooms |= 1 << left
    return [tuple(row) for row in rows]
