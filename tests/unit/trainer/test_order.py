from clockgate_trainer.data.order import (
    Cursor,
    Split,
    StepRows,
    cursor_digest,
    epoch_order,
    grouped_order,
    rows_for,
    samples_in_steps,
    steps_for_epochs,
    steps_for_samples,
)
from hypothesis import given
from hypothesis import strategies as st

splits = st.builds(Split, world=st.integers(1, 4), micro_batch=st.integers(1, 4), accumulation=st.integers(1, 4))


def all_ranks(cursor: Cursor, rows: int, split: Split) -> list[StepRows]:
    return [rows_for(cursor, singles(rows), split=split, rank=rank) for rank in range(split.world)]


def singles(rows: int) -> list[tuple[int]]:
    """The rows of an epoch, each of one sample."""
    return [(row,) for row in epoch_order(3, 0, rows)]


def epoch_of(rows: int, split: Split) -> list[int]:
    """Rows of one epoch in the order in which steps consume them."""
    cursor = Cursor()
    seen: list[int] = []
    while cursor.epoch == 0:
        step = rows_for(cursor, singles(rows), split=split, rank=0)
        seen += step.everyone
        cursor = step.after
    return seen


def test_order_is_known_and_the_same_on_every_machine() -> None:
    assert epoch_order(0, 0, 8) == (3, 5, 7, 1, 2, 0, 4, 6)


def test_order_changes_with_seed_and_epoch() -> None:
    orders = {epoch_order(seed, epoch, 50) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


@given(st.integers(0, 10**6), st.integers(0, 50), st.integers(1, 200))
def test_order_is_a_permutation(seed: int, epoch: int, rows: int) -> None:
    assert sorted(epoch_order(seed, epoch, rows)) == list(range(rows))


@given(st.integers(1, 60), splits, splits)
def test_order_of_rows_does_not_depend_on_how_steps_are_divided(rows: int, one: Split, other: Split) -> None:
    assert epoch_of(rows, one) == epoch_of(rows, other) == list(epoch_order(3, 0, rows))


@given(st.integers(1, 60), splits)
def test_every_rank_runs_the_same_micro_batches_and_each_row_is_seen_once(rows: int, split: Split) -> None:
    cursor = Cursor()
    while cursor.epoch == 0:
        steps = all_ranks(cursor, rows, split)
        assert len({len(step.micro_batches) for step in steps}) == 1
        assert 1 <= len(steps[0].micro_batches) <= split.accumulation
        assert all(len(micro) == split.micro_batch for step in steps for micro in step.micro_batches)
        real = [row[0] for step in steps for micro in step.micro_batches for row in micro if row is not None]
        assert sorted(real) == sorted(steps[0].everyone)
        assert all(step.everyone == steps[0].everyone and step.after == steps[0].after for step in steps)
        cursor = steps[0].after


def test_last_step_of_an_epoch_is_padded_and_the_next_epoch_starts_at_its_first_row() -> None:
    steps = all_ranks(Cursor(0, 4), 5, Split(world=2, micro_batch=2, accumulation=2))
    assert steps[0].micro_batches == (((epoch_order(3, 0, 5)[4],), None),)
    assert steps[1].micro_batches == ((None, None),)
    assert steps[0].after == Cursor(1, 0)


def test_digest_tells_cursor_seed_and_data_apart_and_fits_the_vote_row() -> None:
    digests = {
        cursor_digest(cursor, seed, data)
        for cursor in (Cursor(0, 0), Cursor(0, 1), Cursor(1, 0))
        for seed in (0, 1)
        for data in ("a", "b")
    }
    assert len(digests) == 12
    assert all(0 <= digest < 2**63 for digest in digests)


def test_steps_of_epochs_count_the_short_last_step() -> None:
    split = Split(world=2, micro_batch=1, accumulation=2)
    assert steps_for_epochs(1, 9, split) == 3
    assert steps_for_epochs(2.5, 9, split) == 8
    assert steps_for_epochs(0.01, 9, split) == 1


def test_packed_row_is_given_to_one_rank_with_all_its_samples() -> None:
    step = rows_for(Cursor(), [(4, 1), (0,), (2, 3)], split=Split(world=2, micro_batch=1, accumulation=1), rank=1)
    assert step.micro_batches == (((0,),),)
    assert step.everyone == (4, 1, 0)
    assert step.after == Cursor(0, 2)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=1000), st.integers(0, 3))
def test_grouped_order_is_a_permutation_that_changes_with_the_epoch(lengths: list[int], epoch: int) -> None:
    order = grouped_order(5, epoch, lengths)
    assert sorted(order) == list(range(len(lengths)))
    if len(set(lengths)) > 1 and len(lengths) > 100:
        assert order != grouped_order(5, epoch + 1, lengths)


def test_neighbours_in_a_grouped_order_are_of_about_equal_length() -> None:
    lengths = [1 + row * 7 % 1000 for row in range(1600)]
    order = grouped_order(1, 0, lengths)

    def padding(rows: list[int]) -> int:
        pairs = [rows[start : start + 4] for start in range(0, len(rows), 4)]
        return sum(4 * max(lengths[row] for row in four) - sum(lengths[row] for row in four) for four in pairs)

    assert padding(order) * 20 < padding(list(epoch_order(1, 0, 1600)))


def test_lengths_of_a_grouped_order_do_not_rise_and_fall_over_the_epoch() -> None:
    lengths = [5] * 800 + [500] * 800
    order = grouped_order(1, 0, lengths)
    quarters = [sum(lengths[row] for row in order[start : start + 400]) for start in range(0, 1600, 400)]
    assert max(quarters) < 1.4 * min(quarters)


def test_steps_stand_for_the_samples_that_they_see_unpacked() -> None:
    split = Split(world=1, micro_batch=1, accumulation=4)
    # 10 samples are three steps an epoch, of 4, 4 and 2.
    assert [samples_in_steps(steps, 10, split) for steps in (1, 2, 3, 4, 6)] == [4, 8, 10, 14, 20]
    assert steps_for_samples(20, 10, 5, split) == 4
    assert steps_for_samples(5, 10, 5, split) == 1
    assert steps_for_samples(1, 1000, 100, split) == 1
