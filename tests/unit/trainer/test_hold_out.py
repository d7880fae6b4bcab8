from clockgate_trainer.data.split import hold_out, left_to_train
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st


def test_rows_held_out_are_the_ones_that_qlora_holds_out() -> None:
    rows = Dataset.from_dict({"row": list(range(100))})
    theirs = rows.train_test_split(test_size=16, shuffle=True, seed=42)
    train, held = hold_out(100, 16)
    assert held == theirs["test"]["row"]
    assert train == theirs["train"]["row"]
    assert left_to_train([100], 16) == [train]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=4), st.integers(0, 250))
def test_rows_of_several_sets_are_held_out_once_and_never_all(sizes: list[int], held: int) -> None:
    left = left_to_train(sizes, held)
    total = sum(sizes)
    assert sum(len(rows) for rows in left) == (total - held if held < total else total)
    for rows, size in zip(left, sizes, strict=True):
        assert len(set(rows)) == len(rows)
        assert all(0 <= row < size for row in rows)
