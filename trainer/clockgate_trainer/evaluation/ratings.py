"""What a judge's ratings of two systems' answers come to. Pure.

A judge prefers what it reads first or second, whatever it says; so each pair is judged in both orders and the two
orders count the same, however many questions each has.

Two kinds of judgement are known. Points: two numbers, one for each system; a system is worth the sum of its points as a
share of the sum of the baseline's, the mean of both orders. Choices: 1, the first is better, 2, the second is, or 3,
neither; a tie is half a win, and the win rate is the mean of both orders.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from clockgate_trainer.errors import ConfigError

FIRST, SECOND, TIE = 1, 2, 3


@dataclass(frozen=True)
class Match:
    """One file: the judgements of answers of `first`, which the judge was shown first, and `second`.

    `points` holds pairs in this order, `choices` FIRST, SECOND or TIE; one of the two is empty. `unread` judgements
    held neither. `reference` is the one of the two that the file compares the other with.
    """

    first: str
    second: str
    reference: str
    points: tuple[tuple[float, float], ...] = ()
    choices: tuple[int, ...] = ()
    unread: int = 0

    @property
    def names(self) -> frozenset[str]:
        """Of both systems."""
        return frozenset((self.first, self.second))


@dataclass(frozen=True)
class Order:
    """One order in which a pair was judged. `value` is a share (1 is the baseline's worth) or a win rate."""

    shown_first: str
    questions: int
    value: float
    wins: int | None = None
    losses: int | None = None
    ties: int | None = None


@dataclass(frozen=True)
class Result:
    """What `system` is worth against `baseline`.

    `value` is the mean of the orders' values, of which there may be one only; `by_points` tells a share of points from
    a win rate.
    """

    system: str
    baseline: str
    by_points: bool
    value: float
    orders: tuple[Order, ...]
    unread: int


def results_of(matches: Sequence[Match], baseline: str | None = None) -> list[Result]:
    """One result for each pair and kind of judgement, in the order in which pairs first occur.

    The baseline of a pair is `baseline`, else the system that is in all pairs if there are several pairs, else the
    reference of the pair's first file. Raises ConfigError when two files judge one pair in one order.
    """
    known = {name for match in matches for name in match.names}
    if baseline is not None and baseline not in known:
        raise ConfigError(f"--baseline {baseline} is in none of the files: they are about {', '.join(sorted(known))}")
    groups: dict[tuple[frozenset[str], bool], list[Match]] = {}
    for match in matches:
        groups.setdefault((match.names, bool(match.points)), []).append(match)
    common = _common({names for names, _ in groups})
    return [_result(group, by_points, baseline, common) for (_, by_points), group in groups.items()]


def _common(pairs: set[frozenset[str]]) -> str | None:
    shared = frozenset.intersection(*pairs) if len(pairs) > 1 else frozenset()
    return next(iter(shared)) if len(shared) == 1 else None


def _result(group: Sequence[Match], by_points: bool, wanted: str | None, common: str | None) -> Result:
    names = group[0].names
    baseline = next((name for name in (wanted, common) if name in names), group[0].reference)
    (system,) = names - {baseline}
    seen = [match.first for match in group]
    twice = next((name for name in seen if seen.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"two files judge {system} and {baseline} with {twice} shown first: wanted one for each order"
        )
    orders = tuple(_by_points(match, system) if by_points else _by_choices(match, system) for match in group)
    value = sum(order.value for order in orders) / len(orders)
    return Result(system, baseline, by_points, value, orders, sum(match.unread for match in group))


def _by_points(match: Match, system: str) -> Order:
    own, other = (sum(pair[place] for pair in match.points) for place in (0, 1))
    if match.first != system:
        own, other = other, own
    if other <= 0:
        raise ConfigError(f"all points of {match.first} against {match.second} are 0 on one side: no share of nothing")
    return Order(match.first, len(match.points), own / other)


def _by_choices(match: Match, system: str) -> Order:
    won, lost = (FIRST, SECOND) if match.first == system else (SECOND, FIRST)
    wins, losses, ties = (match.choices.count(choice) for choice in (won, lost, TIE))
    return Order(match.first, len(match.choices), (wins + ties / 2) / len(match.choices), wins, losses, ties)
