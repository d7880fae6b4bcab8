"""What is asked: the part of a training row before its answer, from files, from a terminal, and from tokens."""

import pytest
from clockgate_trainer.data.formats import Message, Pair, example_of
from clockgate_trainer.data.record import BadRowError
from clockgate_trainer.data.tokens import Coder, Lengths, Marks, TokenRow, code
from clockgate_trainer.generation.answer import Answer
from clockgate_trainer.generation.encode import encode_prompt, fit
from clockgate_trainer.generation.predictions import Prediction, figures_of, lines_of, parted
from clockgate_trainer.generation.prompts import prompt_of_row, prompt_of_text
from hypothesis import given
from hypothesis import strategies as st

DIALOGUE = "### Human: hi### Assistant: hello### Human: and?### Assistant: more"


def letters(texts: list[str]) -> list[list[int]]:
    return [[ord(letter) for letter in text] for text in texts]


CODER = Coder(letters, Marks(begin=1, end=2, pad=0), Lengths(6, 6))


@pytest.mark.parametrize(
    ("kind", "row", "text", "wanted"),
    [
        ("input-output", {"input": "a", "output": "b"}, "a", "b"),
        ("input-output", {"input": "a"}, "a", ""),
        ("self-instruct", {"prompt": "p"}, "p", ""),
        ("oasst1", {"text": DIALOGUE}, DIALOGUE.removesuffix(" more"), "more"),
        ("oasst1", {"text": "no marks"}, "", "no marks"),
        ("hh-rlhf", {"chosen": "\n\nHuman: q\n\nAssistant: a"}, "\n\nHuman: q\n\nAssistant:", "a"),
        ("chip2", {"text": "<human>: q\n<bot>: a"}, "q", "a"),
        ("chip2", {"text": "<human>: q"}, "q", ""),
    ],
)
def test_prompt_is_what_training_writes_before_the_answer(
    kind: str, row: dict[str, object], text: str, wanted: str
) -> None:
    prompt = prompt_of_row(kind, row, 1)
    assert (prompt.text, prompt.wanted) == (text, wanted)


def test_alpaca_prompt_has_the_frame_of_training() -> None:
    typed = prompt_of_text("alpaca", "Add 1 and 2.")
    trained = example_of("alpaca", {"instruction": "Add 1 and 2.", "output": "3"}, 1)
    assert isinstance(trained, Pair)
    assert typed.text == trained.prompt
    with_input = prompt_of_row("alpaca", {"instruction": "Add.", "input": "1 2"}, 1)
    assert "### Input:\n1 2\n\n### Response: " in with_input.text


def test_typed_dialogue_gets_its_marks_unless_it_has_them() -> None:
    assert prompt_of_text("oasst1", "hi").text == "### Human: hi### Assistant:"
    assert prompt_of_text("oasst1", "### Human: hi### Assistant:").text == "### Human: hi### Assistant:"


def test_a_chat_is_asked_for_its_last_answer_or_its_next_one() -> None:
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    answered = prompt_of_row("chat", {"messages": turns}, 1)
    assert (answered.messages, answered.wanted) == ((Message("user", "q"),), "a")
    open_chat = prompt_of_row("chat", {"messages": [*turns, {"role": "user", "content": "r"}]}, 1)
    assert open_chat.messages is not None
    assert [message.content for message in open_chat.messages] == ["q", "a", "r"]
    assert prompt_of_text("chat", "q").messages == (Message("user", "q"),)


@pytest.mark.parametrize("row", [{"output": "b"}, {"input": None}, {"input": 3}, {"messages": [{"role": "user"}]}])
def test_row_without_a_prompt_is_refused(row: dict[str, object]) -> None:
    with pytest.raises(BadRowError):
        prompt_of_row("chat" if "messages" in row else "input-output", row, 1)


@given(st.text(max_size=12), st.text(max_size=12))
def test_ids_of_a_prompt_are_the_first_ones_of_the_training_row(prompt: str, answer: str) -> None:
    (coded,) = (item for item in code([Pair(prompt, answer, 1)], CODER) if hasattr(item, "row"))
    asked = prompt_of_row("input-output", {"input": prompt, "output": answer}, 1)
    kept = fit(encode_prompt(asked, None, CODER), asked, CODER)
    ids, wanted = parted(coded.row)
    assert ids == kept
    assert wanted == coded.row.input_ids.tolist()[len(kept) :]


def test_a_long_dialogue_keeps_its_end_and_its_begin_mark() -> None:
    asked = prompt_of_row("oasst1", {"text": DIALOGUE}, 1)
    kept = fit(encode_prompt(asked, None, CODER), asked, CODER)
    assert kept == [1, *letters([asked.text[-11:]])[0]]
    assert len(kept) == 12


def test_of_several_answers_in_a_row_the_last_one_is_asked_for() -> None:
    ids = TokenRow.after([1, 5, 6, 7, 8], 2)
    ids.learned[3] = False
    assert parted(ids) == ([1, 5, 6, 7], [8])


def test_predictions_are_lines_by_the_names_of_qlora_and_figures_count_them() -> None:
    answer = Answer("b ✓", "a b ✓", 3, ended=True)
    both = [Prediction("a", "b ✓", answer), Prediction("c", "d", Answer("", "c", 1, ended=False))]
    first, second = lines_of(both).decode().splitlines()
    assert first == '{"input": "a", "output": "b ✓", "prediction_with_input": "a b ✓", "prediction": "b ✓"}'
    assert '"prediction": ""' in second
    figures = figures_of(both, 2.0)
    assert figures["predict_samples_per_second"] == 1
    assert (figures["predict_exact_match"], figures["predict_ended"], figures["predict_gen_len"]) == (0.5, 0.5, 2)
