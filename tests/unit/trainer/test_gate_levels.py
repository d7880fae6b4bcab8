"""Who votes with whom; and the vote's promise: whatever the rows and the order of their arrival, one decision."""

import pytest
from clockgate_trainer.errors import DesyncError
from clockgate_trainer.gate.decide import decide
from clockgate_trainer.gate.levels import by_rank, make_levels
from clockgate_trainer.gate.model import Decision, Limits, Row
from hypothesis import given
from hypothesis import strategies as st

LIMITS = Limits(warn_ns=5_000_000, hold_ns=50_000_000)
NAMES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=6)
SMALL = st.integers(-1, 6)
# Anything that 16 int64 can be, near what they mean more often than far from it.
ANY_ROW = st.tuples(
    st.sampled_from([2, 2, 2, 3]),
    st.sampled_from([1, 1, 1, 2, 3, 99]),
    st.sampled_from([7, 7, 7, 8]),
    *(SMALL | st.integers(-(2**63), 2**63 - 1) for _ in range(13)),
).map(Row.from_wire)


def test_ranks_are_grouped_by_node_in_any_placement() -> None:
    levels = make_levels(["a", "b", "a", "c", "b"])
    assert levels.nodes == ((0, 2), (1, 4), (3,))
    assert (levels.leaders, levels.widest, levels.world_size) == ((0, 1, 3), 2, 5)
    assert levels.node_of(4) == (1, 4)


@pytest.mark.parametrize(("names", "worth"), [("aaaa", False), ("abcd", False), ("aabb", True), ("aab", True)])
def test_two_levels_are_for_several_nodes_of_several_ranks(names: str, worth: bool) -> None:
    assert make_levels(names).is_worth_it is worth


@given(NAMES)
def test_blocks_come_back_in_the_order_of_ranks(names: list[str]) -> None:
    levels = make_levels(names)
    blocks = [[*node, *[-1] * (levels.widest - len(node))] for node in levels.nodes]
    assert by_rank(levels, blocks) == list(range(len(names)))


@given(rows=st.lists(ANY_ROW, min_size=1, max_size=5), data=st.data())
def test_all_ranks_decide_the_same_whatever_the_rows_and_their_order_of_arrival(
    rows: list[Row], data: st.DataObject
) -> None:
    """Each rank gets the rows in an order of its own; half of the ranks get them through leaders."""
    levels = make_levels(data.draw(st.lists(st.sampled_from("abc"), min_size=len(rows), max_size=len(rows))))
    seen: set[Decision | tuple[str, tuple[int, ...]]] = set()
    for rank in range(len(rows)):
        inbox: dict[int, Row] = {}
        for sender in data.draw(st.permutations(range(len(rows)))):
            inbox[sender] = rows[sender]
        if rank % 2:
            arrived = tuple(by_rank(levels, [[inbox[member] for member in node] for node in levels.nodes]))
        else:
            arrived = tuple(inbox[sender] for sender in sorted(inbox))
        seen.add(_decided(arrived))
    assert len(seen) == 1


def _decided(rows: tuple[Row, ...]) -> Decision | tuple[str, tuple[int, ...]]:
    try:
        return decide(rows, LIMITS)
    except DesyncError as error:
        return str(error), error.ranks
