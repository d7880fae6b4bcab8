from clockgate_trainer.data.formats import Chat, Message, Pair
from clockgate_trainer.data.record import Fault, Kind
from clockgate_trainer.data.tokens import IGNORED, Coded, Coder, Lengths, Marks, TokenData, code, token_data
from hypothesis import given
from hypothesis import strategies as st

BEGIN, END = 1, 2


def encode(texts: list[str]) -> list[list[int]]:
    return [[ord(character) for character in text] for text in texts]


def tokens(
    *pairs: tuple[str, str], source: int = 8, target: int = 6, begin: int | None = BEGIN, on_source: bool = False
) -> TokenData:
    rows = [Pair(prompt, answer, line) for line, (prompt, answer) in enumerate(pairs, start=1)]
    found = code(rows, Coder(encode, Marks(begin, END, END), Lengths(source, target, on_source)))
    return token_data([item.row for item in found if isinstance(item, Coded)])


def coded_of(*examples: Pair | Chat | Fault, source: int = 8, target: int = 6, on_source: bool = False) -> list[Coded]:
    return [
        item for item in coding(*examples, source=source, target=target, on_source=on_source) if isinstance(item, Coded)
    ]


def coding(
    *examples: Pair | Chat | Fault, source: int = 8, target: int = 6, on_source: bool = False
) -> list[Coded | Fault]:
    coder = Coder(encode, Marks(BEGIN, END, END), Lengths(source, target, on_source), lay_out)
    return list(code(examples, coder))


def lay_out(chat: Chat) -> tuple[list[int], list[bool]]:
    """One token per character; what the assistant says ends in 3."""
    ids, said = [BEGIN], [False]
    for message in chat.messages:
        text = [ord(character) for character in message.content]
        turn = [*text, 3] if message.role == "assistant" else text
        ids += turn
        said += [message.role == "assistant"] * len(turn)
    return ids, said


def chat(*turns: str) -> Chat:
    roles = ("user", "assistant")
    return Chat(tuple(Message(roles[place % 2], turn) for place, turn in enumerate(turns)), 7)


def test_prompt_is_masked_and_the_answer_with_its_end_mark_is_learned() -> None:
    (row,) = tokens(("ab", "cd")).rows
    assert row.input_ids.tolist() == [BEGIN, ord("a"), ord("b"), ord("c"), ord("d"), END]
    assert row.labels.tolist() == [IGNORED, IGNORED, IGNORED, ord("c"), ord("d"), END]
    assert row.label_tokens == 3


def test_prompt_is_learned_too_when_asked_but_never_its_first_token() -> None:
    (row,) = tokens(("ab", "cd"), on_source=True).rows
    assert row.labels.tolist() == [IGNORED, *row.input_ids[1:]]
    assert row.label_tokens == len(row.input_ids) - 1


def test_cut_answer_keeps_its_end_mark() -> None:
    (coded,) = coded_of(Pair("ab", "c" * 50, 1))
    assert coded.row.labels[-1] == END
    assert coded.row.label_tokens == 6
    assert (coded.cut_prompt, coded.cut_answer) == (False, True)
    assert (coded.prompt_tokens, coded.answer_tokens) == (3, 51)


def test_answer_that_just_fits_is_not_cut() -> None:
    (coded,) = coded_of(Pair("ab", "c" * 5, 1))
    assert not coded.cut_answer


def test_long_prompt_is_cut_behind_the_begin_mark_and_the_answer_survives() -> None:
    (coded,) = coded_of(Pair("p" * 2000, "ok", 1))
    assert coded.row.input_ids[:8].tolist() == [BEGIN, *[ord("p")] * 7]
    assert coded.row.label_tokens == 3
    assert coded.cut_prompt


def test_tokenizer_without_begin_mark_starts_with_the_prompt() -> None:
    assert tokens(("ab", "c"), begin=None).rows[0].input_ids[0] == ord("a")


def test_row_without_anything_to_learn_is_refused_with_its_line() -> None:
    coder = Coder(encode, Marks(None, END, END), Lengths(8, 6))
    first, fault = code([Pair("a", "b", 1), Pair("", "", 2)], coder)
    assert isinstance(first, Coded)
    assert isinstance(fault, Fault)
    assert (fault.line, fault.kind, fault.refuses) == (2, Kind.NOTHING_TO_LEARN, True)


def test_fingerprint_changes_with_a_token_a_mask_and_a_row_border() -> None:
    one = tokens(("ab", "cd")).fingerprint
    assert tokens(("ab", "cd")).fingerprint == one
    assert tokens(("ab", "ce")).fingerprint != one
    assert tokens(("abc", "d")).fingerprint != one
    assert tokens(("ab", "cd"), on_source=True).fingerprint != one


@given(st.text(max_size=30), st.text(max_size=30), st.integers(1, 12), st.integers(1, 12))
def test_row_fits_its_limits_and_always_teaches_the_end(prompt: str, answer: str, source: int, target: int) -> None:
    (row,) = tokens((prompt, answer), source=source, target=target).rows
    assert not row.learned[: len(row.learned) - row.label_tokens].any()
    assert len(row.input_ids) - row.label_tokens <= source
    assert 1 <= row.label_tokens <= target
    assert row.labels[-1] == END


def test_only_the_assistant_is_learned_from_in_a_chat() -> None:
    (coded,) = coded_of(chat("ab", "c", "d", "e"))
    assert coded.row.labels.tolist() == [IGNORED] * 3 + [ord("c"), 3, IGNORED, ord("e"), 3]
    assert coded.row.label_tokens == 4


def test_chat_cut_inside_an_answer_ends_in_the_end_mark() -> None:
    (coded,) = coded_of(chat("ab", "c" * 50), source=4, target=4)
    assert coded.row.input_ids.tolist() == [BEGIN, ord("a"), ord("b"), *[ord("c")] * 4, END]
    assert coded.row.labels[-1] == END
    assert coded.cut_answer


def test_chat_cut_inside_a_prompt_ends_with_the_answer_before_it() -> None:
    (coded,) = coded_of(chat("a", "b", "c" * 50, "d"), source=4, target=4)
    assert coded.row.input_ids.tolist() == [BEGIN, ord("a"), ord("b"), 3]
    assert coded.row.labels[-1] == 3


def test_chat_whose_answers_are_all_cut_is_refused_and_the_limit_named() -> None:
    (fault,) = coding(chat("a" * 50, "b"), source=4, target=4)
    assert isinstance(fault, Fault)
    assert (fault.line, fault.kind) == (7, Kind.NOTHING_TO_LEARN)
    assert "behind token 8 (--source_max_len + --target_max_len)" in fault.text


def test_chat_that_begins_with_an_answer_does_not_learn_its_first_token() -> None:
    coder = Coder(encode, Marks(None, END, END), Lengths(8, 6), lambda _: ([5, 6, 3], [True] * 3))
    (coded,) = code([Chat((Message("assistant", "x"),), 1)], coder)
    assert isinstance(coded, Coded)
    assert coded.row.labels.tolist() == [IGNORED, 6, 3]


def test_prompts_of_a_chat_are_learned_too_when_asked() -> None:
    (coded,) = coded_of(chat("ab", "c"), on_source=True)
    assert coded.row.labels.tolist() == [IGNORED, *coded.row.input_ids[1:]]


def test_answer_without_room_for_anything_but_the_end_mark_is_told() -> None:
    fault, coded = coding(Pair("a", "b", 4), target=1)
    assert isinstance(fault, Fault)
    assert isinstance(coded, Coded)
    assert (fault.line, fault.kind, fault.refuses) == (4, Kind.LOST_ANSWER, False)


def test_faults_pass_through_in_their_place() -> None:
    fault = Fault(2, Kind.NULL, "x")
    first, second, third = coding(Pair("a", "b", 1), fault, Pair("c", "d", 3))
    assert second is fault
    assert isinstance(first, Coded)
    assert isinstance(third, Coded)
    assert (first.line, third.line) == (1, 3)
