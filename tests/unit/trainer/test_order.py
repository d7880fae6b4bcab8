from clockgate_trainer.data.order import (
    Cursor,
    Split,
    StepRows,
    cursor_digest,
    epoch_order,
    rows_for,
    steps_for_epochs,
)
from hypothesis import given
from hypothesis import strategies as st

splits = st.builds(Split, world=st.integers(1, 4), micro_batch=st.integers(1, 4), accumulation=st.integers(1, 4))


def all_ranks(cursor: Cursor, rows: int, split: Split) -> list[StepRows]:
    return [rows_for(cursor, seed=3, rows=rows, split=split, rank=rank) for rank in range(split.world)]


def epoch_of(rows: int, split: Split) -> list[int]:
    """Rows of one epoch in the order in which steps consume them."""
    cursor = Cursor()
    seen: list[int] = []
    while cursor.epoch == 0:
        step = rows_for(cursor, seed=3, rows=rows, split=split, rank=0)
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
        real = [row for step in steps for micro in step.micro_batches for row in micro if row is not None]
        assert sorted(real) == sorted(steps[0].everyone)
        assert all(step.everyone == steps[0].everyone and step.after == steps[0].after for step in steps)
        cursor = steps[0].after


def test_last_step_of_an_epoch_is_padded_and_the_next_epoch_starts_at_its_first_row() -> None:
    steps = all_ranks(Cursor(0, 4), 5, Split(world=2, micro_batch=2, accumulation=2))
    assert steps[0].micro_batches == ((epoch_order(3, 0, 5)[4], None),)
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
