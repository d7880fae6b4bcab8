from itertools import pairwise

from clockgate_trainer.evaluation.rounds import form_batches, meets_after, share
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(1, 9), st.integers(1, 8))
def test_every_row_is_scored_once_and_all_ranks_have_as_many_rounds(lengths: list[int], size: int, world: int) -> None:
    batches = form_batches([(row,) for row in range(len(lengths))], lengths, size)
    shares = [share(batches, world, rank) for rank in range(world)]
    assert len({len(one) for one in shares}) == 1
    assert {len(rows) for one in shares for rows in one} == {min(size, len(lengths))}
    scored = [row[0] for one in shares for rows in one for row in rows if row is not None]
    assert sorted(scored) == list(range(len(lengths)))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(1, 9), st.integers(1, 8))
def test_what_is_in_a_batch_does_not_depend_on_the_number_of_ranks(lengths: list[int], size: int, world: int) -> None:
    batches = form_batches([(row,) for row in range(len(lengths))], lengths, size)
    dealt = [rows for rank in range(world) for rows in share(batches, world, rank) if any(rows)]
    assert sorted(dealt, key=repr) == sorted(batches, key=repr)


def test_the_longest_rows_come_first() -> None:
    assert form_batches([(0,), (1,), (2, 3)], [5, 9, 4, 6], 2) == [((2, 3), (1,)), ((0,), None)]


@given(st.integers(1, 5000))
def test_ranks_meet_after_the_first_and_the_last_round_and_never_more_than_16_rounds_apart(rounds: int) -> None:
    meetings = [done for done in range(1, rounds + 1) if meets_after(done, rounds)]
    assert meetings[0] == 1
    assert meetings[-1] == rounds
    assert max((b - a for a, b in pairwise(meetings)), default=0) <= 16
