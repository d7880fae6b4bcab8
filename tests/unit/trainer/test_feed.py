import pytest
import torch
from clockgate_trainer.data.feed import Arrangement, Feed
from clockgate_trainer.data.order import Cursor, Split
from clockgate_trainer.data.tokens import TokenRow, token_data
from clockgate_trainer.errors import ConfigError

ROWS = [TokenRow.after([1, *[10 + row] * (1 + row % 5), 2], 2) for row in range(23)]
PAD = 2


def feed(**how: object) -> Feed:
    return Feed(token_data(ROWS), PAD, Arrangement(seed=3, **how))  # type: ignore[arg-type]


ARRANGEMENTS: list[dict[str, object]] = [{}, {"group_by_length": True}, {"pack_length": 16}]


def walk(of: Feed, split: Split, epochs: int = 2) -> list[tuple[int, ...]]:
    """The samples of each step of all ranks, with every promise of a step checked on the way."""
    cursor, steps = Cursor(), []
    while cursor.epoch < epochs:
        ranks = [of.step(cursor, split, rank) for rank in range(split.world)]
        assert len({len(step.micro_batches) for step in ranks}) == 1
        assert len({(step.everyone, step.after) for step in ranks}) == 1
        batches = [batch for step in ranks for batch in of.batches(step)]
        assert sum(int(batch.labels[:, 1:].ne(-100).sum()) for batch in batches) == of.label_tokens(ranks[0])
        steps.append(ranks[0].everyone)
        cursor = ranks[0].after
    return steps


@pytest.mark.parametrize("how", ARRANGEMENTS)
def test_samples_come_in_the_same_order_however_steps_are_divided(how: dict[str, object]) -> None:
    splits = [Split(1, 1, 1), Split(2, 2, 1), Split(4, 1, 3), Split(1, 3, 2)]
    orders = [[sample for step in walk(feed(**how), split) for sample in step] for split in splits]
    assert all(order == orders[0] for order in orders)
    half = len(orders[0]) // 2
    assert sorted(orders[0][:half]) == sorted(orders[0][half:]) == list(range(len(ROWS)))
    assert orders[0][:half] != orders[0][half:]


def test_packed_batches_have_one_shape_also_at_the_end_of_an_epoch() -> None:
    of, split = feed(pack_length=16), Split(2, 2, 2)
    cursor, shapes = Cursor(), set()
    while cursor.epoch == 0:
        step = of.step(cursor, split, 1)
        shapes |= {tuple(batch.input_ids.shape) for batch in of.batches(step)}
        cursor = step.after
    assert shapes == {(2, 16)}
    assert tuple(of.heaviest(2).input_ids.shape) == (2, 16)


def test_heaviest_batch_holds_the_longest_rows_and_is_filled_up_with_padding() -> None:
    batch = feed().heaviest(30)
    assert tuple(batch.input_ids.shape) == (30, max(len(row.input_ids) for row in ROWS))
    assert int(batch.labels.ne(-100).any(-1).sum()) == len(ROWS)


def test_tokens_of_a_step_leave_padding_out() -> None:
    of, split = feed(pack_length=16), Split(1, 1, 2)
    step = of.step(Cursor(), split, 0)
    assert of.tokens(step) == sum(len(ROWS[sample].input_ids) for sample in step.everyone)


def test_epochs_done_count_rows_and_keep_the_epoch_that_is_being_read() -> None:
    of = feed(pack_length=16)
    later = of.rows(1)
    assert of.epochs_done(Cursor(1, len(later) // 2)) == pytest.approx(1 + len(later) // 2 / len(later))
    assert of.rows(1) == later


def test_digest_tells_arrangements_apart() -> None:
    others: list[dict[str, object]] = [*ARRANGEMENTS, {"pack_length": 17}]
    assert len({feed(**how).digest(Cursor()) for how in others}) == 4


def test_sample_that_fits_no_packed_row_is_refused() -> None:
    with pytest.raises(ConfigError, match="--pack_length"):
        feed(pack_length=5).rows_per_epoch()


def test_rows_of_a_batch_are_the_samples_of_its_step() -> None:
    of, split = feed(pack_length=16), Split(1, 1, 1)
    step = of.step(Cursor(), split, 0)
    (batch,) = of.batches(step)
    wanted = torch.cat([torch.from_numpy(ROWS[sample].input_ids) for sample in step.everyone])
    assert batch.input_ids[0, : len(wanted)].tolist() == wanted.tolist()
