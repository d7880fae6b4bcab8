"""Lays a chat out by the tokenizer's own template and finds what the assistant says in it.

Where the template marks generations itself, its marks count. Else each answer is what the template adds to the text
when the assistant's message is added to the messages before it.
"""

from collections.abc import Sequence
from typing import Any

from clockgate_trainer.data.formats import Chat, Message
from clockgate_trainer.data.record import BadRowError, Kind
from clockgate_trainer.data.tokens import LayOut
from clockgate_trainer.errors import ConfigError

_GENERATION = "{% generation"
_GENERATION_TRIMMED = "{%- generation"


def chat_layout(tokenizer: Any, name: str) -> LayOut:
    """A function from chat to token ids and marks of what is learned. Raises ConfigError when there is no template.

    The function raises BadRowError when the template refuses a chat or hides where answers are.
    """
    template = tokenizer.chat_template
    if not isinstance(template, str):
        raise ConfigError(
            f"the tokenizer of {name} has no chat template, which --dataset_format chat needs: give one with "
            "--chat_template FILE, or take the instruction-tuned model's tokenizer"
        )
    marked = _GENERATION in template or _GENERATION_TRIMMED in template

    def lay_out(chat: Chat) -> tuple[list[int], list[bool]]:
        turns = [{"role": message.role, "content": message.content} for message in chat.messages]
        return _by_marks(tokenizer, turns) if marked else _by_prefix(tokenizer, turns)

    return lay_out


def chat_prompt(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """Token ids of `messages`, then the mark of an answer. Raises BadRowError, as layouts do."""
    turns = [{"role": message.role, "content": message.content} for message in messages]
    text = _apply(tokenizer, turns, tokenize=False, add_generation_prompt=True)
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def _by_marks(tokenizer: Any, turns: list[dict[str, str]]) -> tuple[list[int], list[bool]]:
    laid = _apply(tokenizer, turns, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    return list(laid["input_ids"]), [bool(mark) for mark in laid["assistant_masks"]]


def _by_prefix(tokenizer: Any, turns: list[dict[str, str]]) -> tuple[list[int], list[bool]]:
    text = _apply(tokenizer, turns, tokenize=False)
    spans = []
    for place, turn in enumerate(turns):
        if turn["role"] != "assistant":
            continue
        before = _apply(tokenizer, turns[:place], tokenize=False, add_generation_prompt=True) if place else ""
        through = _apply(tokenizer, turns[: place + 1], tokenize=False)
        if not (through.startswith(before) and text.startswith(through)):
            raise BadRowError(
                Kind.BAD_CHAT,
                f"the chat template writes the turns up to {place + 1} otherwise once more follow, so what the "
                "assistant says cannot be told: give --chat_template a template with {% generation %} marks",
            )
        spans.append((len(before), len(through)))
    laid = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    starts = [start for start, _ in laid["offset_mapping"]]
    return list(laid["input_ids"]), [any(first <= start < last for first, last in spans) for start in starts]


def _apply(tokenizer: Any, turns: list[dict[str, str]], **how: Any) -> Any:
    # Here, because jinja2 comes with transformers and is wanted for chats alone.
    from jinja2.exceptions import TemplateError  # noqa: PLC0415

    try:
        return tokenizer.apply_chat_template(turns, **how)
    except (TemplateError, ValueError, TypeError) as err:
        raise BadRowError(Kind.BAD_CHAT, f"the chat template refuses the messages: {err}") from err
