import torch
from clockgate_trainer.data.collate import collate
from clockgate_trainer.data.tokens import IGNORED, TokenRow

PAD = END = 2


def test_mask_follows_length_so_a_pad_id_equal_to_the_end_mark_hides_nothing() -> None:
    batch = collate([TokenRow((1, 5, END), 1), TokenRow((1, 5, 6, 7, END), 2)], PAD)
    assert batch.input_ids.tolist() == [[1, 5, END, PAD, PAD], [1, 5, 6, 7, END]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert batch.labels.tolist() == [[IGNORED, 5, END, IGNORED, IGNORED], [IGNORED, IGNORED, 6, 7, END]]


def test_padding_row_teaches_nothing_and_attends_to_something() -> None:
    batch = collate([None, TokenRow((1, 5, END), 1)], PAD)
    assert batch.labels[0].eq(IGNORED).all()
    assert batch.attention_mask[0].tolist() == [1, 0, 0]


def test_micro_batch_of_padding_alone_has_a_shape_that_a_model_can_run() -> None:
    batch = collate([None, None], PAD)
    assert batch.input_ids.shape == (2, 1)
    assert batch.attention_mask.eq(1).all()


def test_batch_moves_as_a_whole() -> None:
    moved = collate([TokenRow((1, 5, END), 1)], PAD).to(torch.device("meta"))
    assert {moved.input_ids.device.type, moved.attention_mask.device.type, moved.labels.device.type} == {"meta"}
