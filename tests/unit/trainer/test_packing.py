import time

import pytest
from clockgate_trainer.data.order import epoch_order
from clockgate_trainer.data.packing import pack
from clockgate_trainer.errors import ConfigError
from hypothesis import given
from hypothesis import strategies as st

lengths_lists = st.lists(st.integers(1, 64), min_size=1, max_size=200)


@given(lengths_lists, st.integers(64, 256))
def test_every_sample_is_in_one_row_and_no_row_is_too_long(lengths: list[int], capacity: int) -> None:
    rows = pack(range(len(lengths)), lengths, capacity)
    assert sorted(sample for row in rows for sample in row) == list(range(len(lengths)))
    assert all(1 <= sum(lengths[sample] for sample in row) <= capacity for row in rows)


@given(lengths_lists, st.randoms(use_true_random=False))
def test_number_of_rows_depends_on_lengths_alone(lengths: list[int], draw: object) -> None:
    order = list(range(len(lengths)))
    draw.shuffle(order)  # type: ignore[attr-defined]
    assert len(pack(order, lengths, 64)) == len(pack(range(len(lengths)), lengths, 64))


def test_sample_goes_into_the_fullest_row_that_has_room() -> None:
    assert pack(range(5), [6, 5, 4, 3, 2], 10) == [(0, 2), (1, 3, 4)]


def test_order_decides_which_of_equally_long_samples_are_neighbours() -> None:
    assert pack([3, 2, 1, 0], [5, 5, 5, 5], 10) == [(3, 2), (1, 0)]
    assert pack([0, 1, 2, 3], [5, 5, 5, 5], 10) == [(0, 1), (2, 3)]


def test_sample_longer_than_a_row_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"--pack_length is 8 tokens and the longest sample has 9"):
        pack([0, 1], [3, 9], 8)


def test_a_hundred_thousand_samples_are_packed_in_seconds_and_almost_without_holes() -> None:
    lengths = [20 + (row * row) % 900 for row in range(100_000)]
    started = time.monotonic()
    rows = pack(epoch_order(1, 0, len(lengths)), lengths, 2048)
    assert time.monotonic() - started < 20
    assert sum(lengths) / (len(rows) * 2048) > 0.99
