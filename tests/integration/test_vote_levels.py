"""Eight ranks on two nodes: a vote in two levels gives every rank the decision of the flat one."""

import pytest
from support.vote_ranks import decisions_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(200)]


def test_two_levels_decide_as_one_and_all_ranks_alike() -> None:
    found = decisions_of(ranks=8, nodes=2, votes=30)
    assert len(found) == 8
    assert len({digest for kinds in found for digest in kinds.values()}) == 1


def test_nodes_of_unequal_size_vote_and_lose_a_leader_together() -> None:
    found = decisions_of(ranks=5, nodes=2, votes=10, killed=3)
    assert len({kinds[kind] for kinds in found for kind in ("flat", "two_levels")}) == 1
    assert [kinds["lost"] for kinds in found] == ["lost"] * 4
