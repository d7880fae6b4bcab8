import pytest
from clockgate_trainer.data.formats import Pair
from clockgate_trainer.data.tokens import IGNORED, Lengths, Marks, TokenData, tokenize
from clockgate_trainer.errors import ConfigError
from hypothesis import given
from hypothesis import strategies as st

BEGIN, END = 1, 2


def encode(texts: list[str]) -> list[list[int]]:
    return [[ord(character) for character in text] for text in texts]


def tokens(
    *pairs: tuple[str, str], source: int = 8, target: int = 6, begin: int | None = BEGIN, on_source: bool = False
) -> TokenData:
    rows = [Pair(prompt, answer, line) for line, (prompt, answer) in enumerate(pairs, start=1)]
    return tokenize(rows, encode, Marks(begin, END, END), Lengths(source, target, on_source))


def test_prompt_is_masked_and_the_answer_with_its_end_mark_is_learned() -> None:
    (row,) = tokens(("ab", "cd")).rows
    assert row.input_ids == (BEGIN, ord("a"), ord("b"), ord("c"), ord("d"), END)
    assert row.labels == (IGNORED, IGNORED, IGNORED, ord("c"), ord("d"), END)
    assert row.label_tokens == 3


def test_prompt_is_learned_too_when_asked_but_never_its_first_token() -> None:
    (row,) = tokens(("ab", "cd"), on_source=True).rows
    assert row.labels == row.input_ids
    assert row.label_tokens == len(row.input_ids) - 1


def test_cut_answer_keeps_its_end_mark() -> None:
    data = tokens(("ab", "c" * 50))
    assert data.rows[0].labels[-1] == END
    assert data.rows[0].label_tokens == 6
    assert (data.cut_prompts, data.cut_answers) == (0, 1)


def test_answer_that_just_fits_is_not_cut() -> None:
    assert tokens(("ab", "c" * 5)).cut_answers == 0


def test_long_prompt_is_cut_behind_the_begin_mark_and_the_answer_survives() -> None:
    data = tokens(("p" * 2000, "ok"))
    assert data.rows[0].input_ids[:8] == (BEGIN, *[ord("p")] * 7)
    assert data.rows[0].label_tokens == 3
    assert data.cut_prompts == 1


def test_tokenizer_without_begin_mark_starts_with_the_prompt() -> None:
    assert tokens(("ab", "c"), begin=None).rows[0].input_ids[0] == ord("a")


def test_row_without_anything_to_learn_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match="line 2"):
        tokens(("a", "b"), ("", ""), begin=None)


def test_fingerprint_changes_with_a_token_a_mask_and_a_row_border() -> None:
    one = tokens(("ab", "cd")).fingerprint
    assert tokens(("ab", "cd")).fingerprint == one
    assert tokens(("ab", "ce")).fingerprint != one
    assert tokens(("abc", "d")).fingerprint != one
    assert tokens(("ab", "cd"), on_source=True).fingerprint != one


@given(st.text(max_size=30), st.text(max_size=30), st.integers(1, 12), st.integers(1, 12))
def test_row_fits_its_limits_and_always_teaches_the_end(prompt: str, answer: str, source: int, target: int) -> None:
    (row,) = tokens((prompt, answer), source=source, target=target).rows
    assert row.masked <= source
    assert 1 <= row.label_tokens <= target
    assert row.labels[-1] == END
