import torch
from clockgate_trainer.data.collate import collate, collate_packed
from clockgate_trainer.data.tokens import IGNORED, TokenRow

PAD = END = 2


def test_mask_follows_length_so_a_pad_id_equal_to_the_end_mark_hides_nothing() -> None:
    batch = collate([TokenRow.after((1, 5, END), 1), TokenRow.after((1, 5, 6, 7, END), 2)], PAD)
    assert batch.input_ids.tolist() == [[1, 5, END, PAD, PAD], [1, 5, 6, 7, END]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert batch.labels.tolist() == [[IGNORED, 5, END, IGNORED, IGNORED], [IGNORED, IGNORED, 6, 7, END]]


def test_padding_row_teaches_nothing_and_attends_to_something() -> None:
    batch = collate([None, TokenRow.after((1, 5, END), 1)], PAD)
    assert batch.labels[0].eq(IGNORED).all()
    assert batch.attention_mask[0].tolist() == [1, 0, 0]


def test_micro_batch_of_padding_alone_has_a_shape_that_a_model_can_run() -> None:
    batch = collate([None, None], PAD)
    assert batch.input_ids.shape == (2, 1)
    assert batch.attention_mask.eq(1).all()


def test_batch_moves_as_a_whole() -> None:
    moved = collate([TokenRow.after((1, 5, END), 1)], PAD).to(torch.device("meta"))
    assert {moved.input_ids.device.type, moved.attention_mask.device.type, moved.labels.device.type} == {"meta"}


A, B, C = TokenRow.after((1, 5, END), 1), TokenRow.after((1, 6, 7, END), 2), TokenRow.after((1, 9), 1)


def test_packed_rows_are_of_one_width_and_positions_begin_anew_with_each_sample() -> None:
    batch = collate_packed([[A, B], [C], None], PAD, 8)
    assert batch.documents is not None
    assert batch.input_ids.tolist() == [[1, 5, END, 1, 6, 7, END, PAD], [1, 9, *[PAD] * 6], [PAD] * 8]
    assert batch.documents.positions.tolist() == [[0, 1, 2, 0, 1, 2, 3, 0], [0, 1, *range(6)], list(range(8))]
    assert batch.documents.starts.tolist() == [0, 3, 7, 8, 10, 16, 24]


def test_first_token_of_a_sample_is_not_learned_from_the_sample_before_it() -> None:
    whole = TokenRow.after((1, 5, END), 0)
    batch = collate_packed([[whole, whole]], PAD, 6)
    assert batch.labels.tolist() == [[IGNORED, 5, END, IGNORED, 5, END]]


def test_token_of_a_packed_row_sees_its_own_sample_up_to_itself_and_nothing_else() -> None:
    batch = collate_packed([[A, B]], PAD, 8)
    assert batch.documents is not None
    sees = [[place for place, seen in enumerate(row) if seen] for row in batch.documents.mask()[0, 0].tolist()]
    assert sees == [[0], [0, 1], [0, 1, 2], [3], [3, 4], [3, 4, 5], [3, 4, 5, 6], [7]]


def test_packed_padding_row_teaches_nothing_and_attends_to_something() -> None:
    batch = collate_packed([None], PAD, 4)
    assert batch.documents is not None
    assert batch.labels.eq(IGNORED).all()
    assert batch.documents.mask().any(-1).all()


def test_packed_batch_moves_as_a_whole() -> None:
    moved = collate_packed([[A]], PAD, 4).to(torch.device("meta"))
    assert moved.documents is not None
    assert {moved.documents.positions.device.type, moved.documents.starts.device.type} == {"meta"}
