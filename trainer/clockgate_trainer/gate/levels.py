"""Who votes with whom when there are many ranks: the ranks of a node, and one rank of each node. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

_Row = TypeVar("_Row")


@dataclass(frozen=True)
class Levels:
    """`nodes` holds the ranks of each node, ascending; every rank from 0 is on exactly one, and none is empty."""

    nodes: tuple[tuple[int, ...], ...]

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return sum(len(node) for node in self.nodes)

    @property
    def leaders(self) -> tuple[int, ...]:
        """The first rank of each node."""
        return tuple(node[0] for node in self.nodes)

    @property
    def widest(self) -> int:
        """How many ranks the fullest node has."""
        return max(len(node) for node in self.nodes)

    @property
    def is_worth_it(self) -> bool:
        """Whether two levels are less work than one: not on a single node, nor with one rank on each."""
        return 1 < len(self.nodes) < self.world_size

    def node_of(self, rank: int) -> tuple[int, ...]:
        """The ranks on the node of `rank`."""
        return next(node for node in self.nodes if rank in node)


def make_levels(names: Sequence[str]) -> Levels:
    """Group ranks by the names of their nodes, which are given in the order of ranks."""
    nodes: dict[str, list[int]] = {}
    for rank, name in enumerate(names):
        nodes.setdefault(name, []).append(rank)
    return Levels(tuple(tuple(ranks) for ranks in nodes.values()))


def by_rank(levels: Levels, blocks: Sequence[Sequence[_Row]]) -> list[_Row]:
    """The rows in the order of ranks, from one block for each node in the order of its ranks; padding is left out."""
    rows = {
        rank: block[place] for node, block in zip(levels.nodes, blocks, strict=True) for place, rank in enumerate(node)
    }
    return [rows[rank] for rank in range(levels.world_size)]
