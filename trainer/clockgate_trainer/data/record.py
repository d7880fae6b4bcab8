"""What readers hand on: a row with its place in the file, or a fault with its place. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What can be wrong with data. Those in WARNINGS leave a row that can be trained on."""

    EMPTY_FILE = "empty_file"
    NO_ROWS = "no_rows"
    UNREADABLE = "unreadable"
    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    DUPLICATE_KEY = "duplicate_key"
    LONE_SURROGATE = "lone_surrogate"
    CSV_QUOTING = "csv_quoting"
    CSV_WIDTH = "csv_width"
    MISSING_COLUMN = "missing_column"
    NULL = "null"
    WRONG_TYPE = "wrong_type"
    BAD_CHAT = "bad_chat"
    NO_ANSWER_MARK = "no_answer_mark"
    NOTHING_TO_LEARN = "nothing_to_learn"
    LOST_ANSWER = "lost_answer"
    EMPTY_ANSWER = "empty_answer"
    ANSWER_IS_NULL_WORD = "answer_is_null_word"


WARNINGS = frozenset({Kind.LOST_ANSWER, Kind.EMPTY_ANSWER, Kind.ANSWER_IS_NULL_WORD})


@dataclass(frozen=True)
class Record:
    """One row of a file. `line` is where it begins, from 1; in a file without lines it is the row's number, from 1."""

    line: int
    row: Mapping[str, object]


@dataclass(frozen=True)
class Fault:
    """What is wrong and what was wanted. `line` is as in Record; None when it is about the whole file."""

    line: int | None
    kind: Kind
    text: str

    @property
    def refuses(self) -> bool:
        """Whether nothing can be trained while this stands."""
        return self.kind not in WARNINGS

    def at(self, name: str) -> str:
        """The fault as a person reads it; `name` is the file's or the data set's."""
        return f"{name}: {self.text}" if self.line is None else f"{name}:{self.line}: {self.text}"


class BadRowError(Exception):
    """One row is not as wanted."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(text)
        self.kind = kind

    def fault(self, line: int) -> Fault:
        """The same as a value."""
        return Fault(line, self.kind, str(self))
