import pytest
from clockgate_trainer.data.mixture import Share, counts_of, read_shares, rows_of
from clockgate_trainer.errors import ConfigError
from hypothesis import given
from hypothesis import strategies as st


def test_sets_are_read_with_and_without_weights() -> None:
    assert read_shares("alpaca") == (Share("alpaca"),)
    assert read_shares("a.jsonl:0.7, b.parquet:3") == (Share("a.jsonl", 0.7), Share("b.parquet", 3.0))
    assert read_shares("C:\\rows.jsonl") == (Share("C:\\rows.jsonl"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a:0.5,b", "b has no weight while others have"),
        ("a,", "empty name"),
        (":0.5", "empty name"),
        ("a:0,b:1", "weight of a is 0"),
        ("a:-1,b:1", "weight of a is -1"),
        ("a:nan,b:1", "weight of a is nan"),
        ("a:1,a:2", "names a set twice"),
    ],
)
def test_what_is_no_mixture_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_shares(text)


def test_without_weights_every_row_is_there_once_up_to_the_limit() -> None:
    assert counts_of([5, 7], None, None) == [5, 7]
    assert counts_of([5, 7], None, 6) == [5, 1]
    assert counts_of([5, 7], None, 3) == [3, 0]


def test_weights_share_the_rows_of_all_sets() -> None:
    assert counts_of([100, 100], [0.7, 0.3], None) == [140, 60]
    assert counts_of([10], [0.2], None) == [10]
    assert counts_of([3, 3, 3], [1, 1, 1], 10) == [3, 3, 3]


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.floats(0.01, 100)), min_size=1, max_size=5),
    st.none() | st.integers(1, 500),
)
def test_shares_add_up_and_are_off_by_less_than_one_row(sets: list[tuple[int, float]], limit: int | None) -> None:
    sizes, weights = [size for size, _ in sets], [weight for _, weight in sets]
    total = sum(sizes) if limit is None else min(limit, sum(sizes))
    counts = counts_of(sizes, weights, limit)
    assert sum(counts) == total
    for count, weight in zip(counts, weights, strict=True):
        assert abs(count - total * weight / sum(weights)) < 1 + 1e-6


@given(st.integers(1, 50), st.integers(0, 200), st.integers(0, 5))
def test_rows_of_a_share_repeat_whole_passes_and_a_part_drawn_by_the_seed(size: int, count: int, seed: int) -> None:
    rows = rows_of(seed, 0, size, count, in_order=False)
    assert len(rows) == count
    times = [rows.count(row) for row in range(size)]
    assert max(times, default=0) - min(times, default=0) <= 1
    assert rows == rows_of(seed, 0, size, count, in_order=False)


def test_part_is_another_for_another_seed_and_the_first_rows_in_order() -> None:
    assert rows_of(1, 0, 100, 10, in_order=False) != rows_of(2, 0, 100, 10, in_order=False)
    assert rows_of(1, 0, 100, 10, in_order=True) == list(range(10))
