"""What a row of each data format means: a prompt and the answer to learn, or a chat. Pure.

The two Alpaca prompts are the public ones of the Stanford Alpaca project, with the trailing space that qlora.py gives
them; chip2 rows are cut at their marks as qlora.py cuts them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from clockgate_trainer.data.json_rows import name_of
from clockgate_trainer.data.record import BadRowError, Fault, Kind

_WITH_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further context. "
    "Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response: "
)
_WITHOUT_INPUT = (
    "Below is an instruction that describes a task. "
    "Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Response: "
)
_HUMAN, _BOT = "<human>: ", "\n<bot>: "
ROLES = ("system", "user", "assistant", "tool")
DEFAULT_FORMAT = "input-output"
_NULL_WORDS = ("none", "null", "nan")


@dataclass(frozen=True)
class Pair:
    """One training row: `answer` is learned after `prompt`; `line` is its line in the file, from 1."""

    prompt: str
    answer: str
    line: int


@dataclass(frozen=True)
class Message:
    """One turn of a chat; `role` is one of ROLES."""

    role: str
    content: str


@dataclass(frozen=True)
class Chat:
    """One training row: what the assistant says in it is learned. Some message is the assistant's."""

    messages: tuple[Message, ...]
    line: int


Example = Pair | Chat


@dataclass(frozen=True)
class Columns:
    """Columns of a format; an optional one may be absent, which counts as empty."""

    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()


_ALPACA = Columns(("instruction", "output"), ("input",))
_CHAT = Columns(("messages",))
COLUMNS: Mapping[str, Columns] = {
    "alpaca": _ALPACA,
    "alpaca-clean": _ALPACA,
    "chip2": Columns(("text",)),
    "self-instruct": Columns(("prompt", "completion")),
    "hh-rlhf": Columns(("chosen",)),
    "oasst1": Columns(("text",)),
    "input-output": Columns(("input", "output")),
    "longform": Columns(("input", "output")),
    "chat": _CHAT,
}
# For the guess from columns: of formats with the same columns the first is the likelier one.
_GUESSES = ("chat", "alpaca", "input-output", "self-instruct", "hh-rlhf", "oasst1")


def example_of(format_name: str, row: Mapping[str, object], line: int) -> Example:
    """What a row teaches. Raises BadRowError when a column is missing or holds anything but proper text."""
    wanted = COLUMNS[format_name]
    missing = [name for name in wanted.needed if name not in row]
    if missing:
        raise BadRowError(Kind.MISSING_COLUMN, _missing(missing, row))
    if wanted is _CHAT:
        return Chat(_messages(row["messages"]), line)
    texts = {name: _text(name, row[name]) for name in (*wanted.needed, *wanted.optional) if name in row}
    prompt, answer = _PAIRS[format_name](texts)
    return Pair(prompt, answer, line)


def doubts_about(example: Example) -> Iterator[Fault]:
    """What is suspect about a row that can be trained on: answers that are empty or that stand for a missing value."""
    if isinstance(example, Pair):
        answers = [example.answer.strip()]
    else:
        answers = [message.content.strip() for message in example.messages if message.role == "assistant"]
    if "" in answers:
        text = "the answer is empty" if len(answers) == 1 else "an answer is empty"
        yield Fault(example.line, Kind.EMPTY_ANSWER, f"{text}: it teaches the end mark alone")
    word = next((answer for answer in answers if answer.lower() in _NULL_WORDS), None)
    if word is not None:
        text = f"the answer is the word {word!r}, which tools write in place of a missing value"
        yield Fault(example.line, Kind.ANSWER_IS_NULL_WORD, text)


def format_with(columns: frozenset[str]) -> str | None:
    """The format whose needed columns are all among `columns`, for a hint; None when there is none."""
    return next((name for name in _GUESSES if columns.issuperset(COLUMNS[name].needed)), None)


def _alpaca(texts: Mapping[str, str]) -> tuple[str, str]:
    extra = texts.get("input", "")
    prompt = _WITH_INPUT if extra else _WITHOUT_INPUT
    return prompt.format(instruction=texts["instruction"], input=extra), texts["output"]


def _chip2(texts: Mapping[str, str]) -> tuple[str, str]:
    human, *answers = texts["text"].split(_BOT)
    if not answers:
        raise BadRowError(
            Kind.NO_ANSWER_MARK, "text has no line that begins with '<bot>: ': nothing in it is an answer"
        )
    return human.replace(_HUMAN, ""), answers[0]


_PAIRS: Mapping[str, Callable[[Mapping[str, str]], tuple[str, str]]] = {
    "alpaca": _alpaca,
    "alpaca-clean": _alpaca,
    "chip2": _chip2,
    "self-instruct": lambda texts: (texts["prompt"], texts["completion"]),
    "hh-rlhf": lambda texts: ("", texts["chosen"]),
    "oasst1": lambda texts: ("", texts["text"]),
    "input-output": lambda texts: (texts["input"], texts["output"]),
    "longform": lambda texts: (texts["input"], texts["output"]),
}


def _messages(value: object) -> tuple[Message, ...]:
    if not isinstance(value, list):
        raise BadRowError(_null_or(value, Kind.WRONG_TYPE), f"messages is {name_of(value)} where an array is wanted")
    messages = tuple(_message(place, item) for place, item in enumerate(value, start=1))
    if not any(message.role == "assistant" for message in messages):
        raise BadRowError(Kind.BAD_CHAT, "no message is the assistant's: there is nothing to learn")
    return messages


def _message(place: int, value: object) -> Message:
    if not isinstance(value, Mapping):
        raise BadRowError(Kind.BAD_CHAT, f"message {place} is {name_of(value)} where an object is wanted")
    for name in ("role", "content"):
        if name not in value:
            raise BadRowError(Kind.BAD_CHAT, f"message {place} has no {name}")
    role = _text(f"role of message {place}", value["role"])
    if role not in ROLES:
        raise BadRowError(Kind.BAD_CHAT, f"role of message {place} is {role[:40]!r}: wanted one of {', '.join(ROLES)}")
    return Message(role, _text(f"content of message {place}", value["content"]))


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadRowError(_null_or(value, Kind.WRONG_TYPE), f"{name} is {name_of(value)} where text is wanted")
    try:
        value.encode()
    except UnicodeEncodeError as err:
        code = ord(value[err.start])
        if 0xDC80 <= code <= 0xDCFF:
            found = f"{name} holds byte {code - 0xDC00:#04x}, which is not UTF-8, or half of a surrogate pair"
            raise BadRowError(Kind.NOT_UTF8, f"{found}: save the file as UTF-8") from None
        raise BadRowError(
            Kind.LONE_SURROGATE,
            f"{name} holds half of a surrogate pair, \\u{code:04x}, which is no text: repair the row",
        ) from None
    return value


def _null_or(value: object, other: Kind) -> Kind:
    return Kind.NULL if value is None else other


def _missing(names: list[str], row: Mapping[str, object]) -> str:
    has = ", ".join(repr(name)[1:-1] for name in row) or "nothing"
    other = format_with(frozenset(row))
    hint = f"; --dataset_format {other} would fit" if other else ""
    return f"column {', '.join(names)} is missing: the row has {has}{hint}"
