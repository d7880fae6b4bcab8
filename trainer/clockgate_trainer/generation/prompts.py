"""What a model is asked: the part of a training row before its answer, as training writes it. Pure.

Where a format holds a whole dialogue in one column (oasst1, hh-rlhf), the prompt is the dialogue through its last mark
of the assistant; a model learns such rows from the begin mark on.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from clockgate_trainer.data.formats import Chat, Example, Message, example_of

# The column that is learned, which a file of prompts need not have.
_ANSWERS: Mapping[str, str] = {
    "alpaca": "output",
    "alpaca-clean": "output",
    "self-instruct": "completion",
    "input-output": "output",
    "longform": "output",
}
# Through these a dialogue is the prompt, and behind them comes the answer. The marks of the public data sets.
_DIALOGUES: Mapping[str, tuple[str, str]] = {
    "oasst1": ("### Human: {}### Assistant:", "### Assistant:"),
    "hh-rlhf": ("\n\nHuman: {}\n\nAssistant:", "\n\nAssistant:"),
}
_COLUMN_OF_ONE: Mapping[str, str] = {
    "alpaca": "instruction",
    "alpaca-clean": "instruction",
    "self-instruct": "prompt",
    "input-output": "input",
    "longform": "input",
}
_CHIP2_BOT = "\n<bot>: "


@dataclass(frozen=True)
class Prompt:
    """One question. `text` is what a pair's prompt is; `messages` are a chat's turns before the answer, else None.

    `wanted` is the answer that the data give; empty without one. `dialogue`: a prompt that training counts as part of
    the answer, so that it may be as long as both together.
    """

    text: str
    messages: tuple[Message, ...] | None
    wanted: str
    dialogue: bool = False


def prompt_of_row(format_name: str, row: Mapping[str, object], line: int) -> Prompt:
    """The prompt in a row of a data file; the column of the answer may be missing. Raises BadRowError."""
    if format_name == "chat":
        return _of_chat_row(row, line)
    if format_name == "chip2" and isinstance(row.get("text"), str) and _CHIP2_BOT not in str(row["text"]):
        row = {**row, "text": f"{row['text']}{_CHIP2_BOT}"}
    answer = _ANSWERS.get(format_name)
    if answer is not None and answer not in row:
        row = {**row, answer: ""}
    return prompt_of(format_name, example_of(format_name, row, line))


def prompt_of(format_name: str, example: Example) -> Prompt:
    """The prompt of a training row, and the answer that it teaches. A chat's last assistant turn is the answer."""
    if isinstance(example, Chat):
        last = max(place for place, turn in enumerate(example.messages) if turn.role == "assistant")
        return Prompt("", example.messages[:last], example.messages[last].content)
    if format_name not in _DIALOGUES:
        return Prompt(example.prompt, None, example.answer)
    head, mark, tail = example.answer.rpartition(_DIALOGUES[format_name][1])
    return Prompt(head + mark, None, tail.strip(), dialogue=True)


def prompt_of_text(format_name: str, text: str) -> Prompt:
    """What a person typed, as a row of this format asks it; a dialogue that has its marks already stays as it is."""
    if format_name == "chat":
        return Prompt("", (Message("user", text),), "")
    if format_name in _DIALOGUES:
        frame, mark = _DIALOGUES[format_name]
        return Prompt(text if text.rstrip().endswith(mark) else frame.format(text), None, "", dialogue=True)
    if format_name == "chip2":
        return Prompt(text, None, "")
    row = {_COLUMN_OF_ONE[format_name]: text, _ANSWERS[format_name]: ""}
    return prompt_of(format_name, example_of(format_name, row, 1))


def _of_chat_row(row: Mapping[str, object], line: int) -> Prompt:
    """A chat that ends in a question is asked as it is; one that ends in an answer is asked for that answer."""
    turns = row.get("messages")
    asks = isinstance(turns, list) and bool(turns) and isinstance(turns[-1], Mapping)
    if asks and isinstance(turns, list) and turns[-1].get("role") != "assistant":
        row = {**row, "messages": [*turns, {"role": "assistant", "content": ""}]}
    return prompt_of("chat", example_of("chat", row, line))
