import pytest
from clockgate_trainer.data.chat import chat_layout
from clockgate_trainer.data.formats import Chat, Message
from clockgate_trainer.data.record import BadRowError, Kind
from clockgate_trainer.errors import ConfigError
from support.tiny_model import make_tokenizer

MARKED = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}A:"
    "{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}"
    "{% else %}U:{{ m.content }};{% endif %}{% endfor %}"
)
PLAIN = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}A:{{ m.content }}{{ eos_token }}"
    "{% else %}U:{{ m.content }};{% endif %}{% endfor %}{% if add_generation_prompt %}A:{% endif %}"
)
# Thoughts are left out of all but the last answer.
FORGETFUL = (
    "{% for m in messages %}{% if m.role == 'assistant' %}A:"
    "{% if loop.last %}{{ m.content }}{% else %}...{% endif %}{% else %}U:{{ m.content }};{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}A:{% endif %}"
)
STRICT = "{% if messages[0].role != 'user' %}{{ raise_exception('a user must begin') }}{% endif %}"

CHAT = Chat(
    (Message("user", "hi"), Message("assistant", "yes"), Message("user", "go"), Message("assistant", "no A:")), 5
)


def lay_out(template: str, chat: Chat) -> tuple[str, str]:
    """The whole text, and what of it is said by the assistant."""
    tokenizer = make_tokenizer()
    tokenizer.chat_template = template
    ids, said = chat_layout(tokenizer, "tiny")(chat)
    assert len(ids) == len(said)
    words = tokenizer.convert_ids_to_tokens(ids)
    return "".join(words), "".join(word for word, mark in zip(words, said, strict=True) if mark)


@pytest.mark.parametrize("template", [MARKED, PLAIN])
def test_answers_and_their_end_marks_are_learned_and_nothing_else(template: str) -> None:
    text, said = lay_out(template, CHAT)
    assert text == "<s>U:hi;A:yes</s>U:go;A:no A:</s>"
    assert said == "yes</s>no A:</s>"


def test_answer_before_any_question_is_learned() -> None:
    _, said = lay_out(PLAIN, Chat((Message("assistant", "hello"),), 1))
    assert said.endswith("hello</s>")


def test_template_that_rewrites_earlier_turns_is_refused_with_advice() -> None:
    with pytest.raises(BadRowError, match=r"turns up to 2 .*\{% generation %\}") as caught:
        lay_out(FORGETFUL, CHAT)
    assert caught.value.kind is Kind.BAD_CHAT


def test_messages_that_the_template_refuses_are_a_bad_row() -> None:
    with pytest.raises(BadRowError, match="a user must begin"):
        lay_out(STRICT, Chat((Message("assistant", "hello"),), 1))


def test_tokenizer_without_a_template_is_refused_with_the_flag() -> None:
    with pytest.raises(ConfigError, match="--chat_template FILE"):
        chat_layout(make_tokenizer(), "tiny")
