"""What a metric is: its name, kind, help and labels, and the numbers that one scrape gives for it. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """The kinds of Prometheus that are used."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Family:
    """One metric. `name` has the unit at its end, and `_total` for a counter; `labels` tell its numbers apart."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    def one(self, value: float | None) -> "Numbers":
        """The only number; none when it is unknown."""
        return Numbers(self, () if value is None else (((), float(value)),))

    def each(self, values: Iterable[tuple[tuple[str, ...], float | None]]) -> "Numbers":
        """A number for each set of labels; those that are unknown are left out."""
        return Numbers(self, tuple((labels, float(value)) for labels, value in values if value is not None))

    def states(self, known: Iterable[str], now: Iterable[str]) -> "Numbers":
        """1 for each of `known` that is among `now`, 0 for the others."""
        here = set(now)
        return Numbers(self, tuple(((name,), float(name in here)) for name in known))


@dataclass(frozen=True)
class Buckets:
    """One histogram: the count up to each upper edge, all of them, and their sum."""

    upto: tuple[tuple[float, int], ...]
    count: int
    sum: float


@dataclass(frozen=True)
class Numbers:
    """What one scrape gives for a family."""

    family: Family
    samples: tuple[tuple[tuple[str, ...], float], ...] = ()
    buckets: Buckets | None = None
