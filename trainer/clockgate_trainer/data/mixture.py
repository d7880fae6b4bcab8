"""Data sets in shares: which samples a mixture holds. Pure, and the same on every machine.

Without weights a mixture is every row of every set once. With weights it has as many samples as the sets have rows
together, and each set gives its share: a set with a larger share than size is gone through more than once, one with a
smaller share gives a part, drawn by the seed once for all epochs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from clockgate_trainer.data.order import epoch_order
from clockgate_trainer.errors import ConfigError


@dataclass(frozen=True)
class Share:
    """One data set of --dataset: a file, a known name or a hub id, and its weight, if weights are given."""

    name: str
    weight: float | None = None


def read_shares(text: str) -> tuple[Share, ...]:
    """The sets in `name[:weight],name[:weight],...`. Raises ConfigError."""
    shares = tuple(_share(part.strip(), text) for part in text.split(","))
    weighted = [share for share in shares if share.weight is not None]
    if weighted and len(weighted) < len(shares):
        without = next(share.name for share in shares if share.weight is None)
        raise ConfigError(f"--dataset {text!r}: {without} has no weight while others have: wanted all or none")
    if len({share.name for share in shares}) < len(shares):
        raise ConfigError(f"--dataset {text!r} names a set twice: wanted each once, with the weight it shall have")
    return shares


def counts_of(sizes: Sequence[int], weights: Sequence[float] | None, limit: int | None) -> list[int]:
    """Samples that each set gives. They add up to all rows, or to `limit`; rounded to the largest remainders."""
    total = sum(sizes) if limit is None else min(limit, sum(sizes))
    if weights is None:
        counts: list[int] = []
        for size in sizes:
            counts.append(min(size, total - sum(counts)))
        return counts
    exact = [total * weight / sum(weights) for weight in weights]
    floors = [int(part) for part in exact]
    by_remainder = sorted(range(len(exact)), key=lambda place: (floors[place] - exact[place], place))
    for place in by_remainder[: total - sum(floors)]:
        floors[place] += 1
    return floors


def rows_of(seed: int, place: int, size: int, count: int, *, in_order: bool) -> list[int]:
    """`count` rows of the set at `place`, which has `size`: whole passes, then a part.

    The part is the first rows, or ones that the seed draws.
    """
    passes, part = divmod(count, size)
    drawn = range(size) if in_order else epoch_order(seed, 0, size, f":share:{place}")
    return [*range(size)] * passes + sorted(drawn[:part])


def _share(part: str, text: str) -> Share:
    name, colon, tail = part.rpartition(":")
    if not part or (colon and not name):
        raise ConfigError(f"--dataset {text!r} has an empty name: wanted name[:weight], separated by commas")
    try:
        weight = float(tail) if colon else None
    except ValueError:
        weight = None
    if weight is None:
        return Share(part)
    if not 0 < weight <= 1e6:
        raise ConfigError(f"--dataset {text!r}: the weight of {name} is {tail}: wanted more than 0, at most 1e6")
    return Share(name, weight)
