import pytest
from clockgate_trainer.data.formats import COLUMNS, DEFAULT_FORMAT, Chat, Message, Pair, example_of, format_with
from clockgate_trainer.data.record import BadRowError, Kind
from clockgate_trainer.flags.table import FLAGS


def pair_of(format_name: str, row: dict[str, object]) -> tuple[str, str]:
    pair = example_of(format_name, row, 3)
    assert isinstance(pair, Pair)
    assert pair.line == 3
    return pair.prompt, pair.answer


def refusal(format_name: str, row: dict[str, object]) -> BadRowError:
    with pytest.raises(BadRowError) as caught:
        example_of(format_name, row, 1)
    return caught.value


def test_alpaca_row_without_input_uses_the_short_prompt() -> None:
    assert pair_of("alpaca", {"instruction": "Name a bird.", "output": "Wren."}) == (
        "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
        "### Instruction:\nName a bird.\n\n### Response: ",
        "Wren.",
    )


def test_alpaca_row_with_input_shows_it() -> None:
    prompt, _ = pair_of("alpaca-clean", {"instruction": "Add.", "input": "1 {and} 2", "output": "3"})
    assert "### Input:\n1 {and} 2\n\n### Response: " in prompt
    assert "paired with an input" in prompt


def test_braces_in_a_row_are_plain_text() -> None:
    assert "{instruction}" in pair_of("alpaca", {"instruction": "{instruction}", "output": ""})[0]


@pytest.mark.parametrize(
    ("format_name", "row", "wanted"),
    [
        ("input-output", {"input": " a ", "output": " b "}, (" a ", " b ")),
        ("longform", {"input": "a", "output": "b"}, ("a", "b")),
        ("self-instruct", {"prompt": "a", "completion": "b"}, ("a", "b")),
        ("hh-rlhf", {"chosen": "\n\nHuman: a", "rejected": "x"}, ("", "\n\nHuman: a")),
        ("oasst1", {"text": "### Human: a### Assistant: b"}, ("", "### Human: a### Assistant: b")),
        ("chip2", {"text": "<human>: a\n<bot>: b\n<human>: c\n<bot>: d"}, ("a", "b\n<human>: c")),
    ],
)
def test_row_of_each_format_is_the_pair_that_qlora_makes_of_it(
    format_name: str, row: dict[str, object], wanted: tuple[str, str]
) -> None:
    assert pair_of(format_name, row) == wanted


def test_chip2_row_without_an_answer_is_refused() -> None:
    assert refusal("chip2", {"text": "<human>: a"}).kind is Kind.NO_ANSWER_MARK


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        (None, Kind.NULL, "output is null where text is wanted"),
        (3, Kind.WRONG_TYPE, "output is a number where text is wanted"),
        ({"k": 1}, Kind.WRONG_TYPE, "output is an object where text is wanted"),
        (["c"], Kind.WRONG_TYPE, "output is an array where text is wanted"),
        (True, Kind.WRONG_TYPE, "output is true or false where text is wanted"),
        ("\ud800", Kind.LONE_SURROGATE, "\\ud800"),
        ("\udcc0", Kind.NOT_UTF8, "byte 0xc0"),
    ],
)
def test_anything_but_text_is_refused_by_name(value: object, kind: Kind, said: str) -> None:
    bad = refusal("input-output", {"input": "c", "output": value})
    assert bad.kind is kind
    assert said in str(bad)


def test_null_in_an_optional_column_is_refused() -> None:
    assert refusal("alpaca", {"instruction": "a", "input": None, "output": "b"}).kind is Kind.NULL


def test_missing_column_suggests_the_format_that_fits() -> None:
    bad = refusal("input-output", {"instruction": "a", "output": "b"})
    assert bad.kind is Kind.MISSING_COLUMN
    assert "column input is missing: the row has instruction, output; --dataset_format alpaca would fit" in str(bad)


def test_chat_row_with_alpaca_format_names_what_it_has() -> None:
    bad = refusal("alpaca", {"messages": [{"role": "user", "content": "hi"}]})
    assert "column instruction, output is missing: the row has messages; --dataset_format chat would fit" in str(bad)


def test_chat_keeps_roles_and_text() -> None:
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes", "name": "x"}]
    assert example_of("chat", {"messages": turns}, 2) == Chat((Message("user", "hi"), Message("assistant", "yes")), 2)


@pytest.mark.parametrize(
    ("messages", "kind", "said"),
    [
        (None, Kind.NULL, "messages is null where an array is wanted"),
        ("hi", Kind.WRONG_TYPE, "messages is text where an array is wanted"),
        ([], Kind.BAD_CHAT, "no message is the assistant's"),
        ([{"role": "user", "content": "hi"}], Kind.BAD_CHAT, "no message is the assistant's"),
        (["hi"], Kind.BAD_CHAT, "message 1 is text where an object is wanted"),
        ([{"role": "assistant"}], Kind.BAD_CHAT, "message 1 has no content"),
        ([{"role": "bot", "content": "hi"}], Kind.BAD_CHAT, "role of message 1 is 'bot': wanted one of system, user"),
        ([{"role": "assistant", "content": None}], Kind.NULL, "content of message 1 is null"),
    ],
)
def test_chat_that_is_none_is_refused_with_the_message(messages: object, kind: Kind, said: str) -> None:
    bad = refusal("chat", {"messages": messages})
    assert bad.kind is kind
    assert said in str(bad)


def test_format_is_suggested_from_columns() -> None:
    assert format_with(frozenset({"instruction", "output", "id"})) == "alpaca"
    assert format_with(frozenset({"input", "output"})) == "input-output"
    assert format_with(frozenset({"title"})) is None


def test_every_format_can_be_asked_for_and_one_is_the_default() -> None:
    (flag,) = (flag for flag in FLAGS if flag.name == "dataset_format")
    assert set(flag.choices) == set(COLUMNS)
    assert DEFAULT_FORMAT in COLUMNS
