"""Strict reading of one JSON object, field by field; a refusal names the field, what is there and what is wanted."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import NoReturn

_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
# Long enough to recognise a value, short enough for one line.
_SHOWN_CHARACTERS = 60


class FieldError(ValueError):
    """A field is missing, too many, or not what it must be; or the content is no JSON object at all."""


def parse_object(content: bytes) -> dict[str, object]:
    """The one JSON object in `content`. Raises FieldError for anything else, a name used twice and NaN included."""
    try:
        parsed: object = json.loads(content, object_pairs_hook=_without_doubles, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise FieldError("the content is nested too deeply") from error
    except FieldError:
        raise
    except ValueError as error:
        raise FieldError(f"the content is not JSON ({error})") from error
    if not isinstance(parsed, dict):
        raise FieldError(f"the content is {_shown(parsed)}, wanted a JSON object")
    return parsed


class Fields:
    """One object's fields, each taken once; `demand_no_more` then refuses what is left over."""

    def __init__(self, values: Mapping[str, object], path: str = "") -> None:
        self._values = values
        self._path = path
        self._taken: set[str] = set()

    def names(self) -> tuple[str, ...]:
        """The names of all fields, in the order of the file."""
        return tuple(self._values)

    def whole(self, name: str, low: int | None = None) -> int:
        """A whole number, at least `low`."""
        value = self._take(name)
        wanted = "a whole number" if low is None else f"a whole number from {low}"
        if not isinstance(value, int) or isinstance(value, bool) or (low is not None and value < low):
            self.refuse(name, value, wanted)
        return value

    def whole_or_none(self, name: str, low: int | None = None) -> int | None:
        """A whole number or null."""
        return None if self._take(name) is None else self.whole(name, low)

    def truth(self, name: str) -> bool:
        """A truth value."""
        value = self._take(name)
        if not isinstance(value, bool):
            self.refuse(name, value, "true or false")
        return value

    def number(self, name: str) -> float:
        """A number, whole or not."""
        value = self._take(name)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            self.refuse(name, value, "a number")
        try:
            finite = math.isfinite(value)
        except OverflowError:
            finite = False
        if not finite:
            self.refuse(name, value, "a number that fits a double")
        return value

    def text(self, name: str) -> str:
        """A string that is not empty."""
        value = self._take(name)
        if not isinstance(value, str) or not value:
            self.refuse(name, value, "a text")
        return value

    def text_or_none(self, name: str) -> str | None:
        """A string that is not empty, or null."""
        return None if self._take(name) is None else self.text(name)

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of `choices`."""
        value = self.text(name)
        if value not in choices:
            self.refuse(name, value, f"one of {', '.join(choices)}")
        return value

    def sha256(self, name: str) -> str:
        """A SHA-256 in lower-case hex."""
        value = self._take(name)
        if not isinstance(value, str) or not _SHA256.fullmatch(value):
            self.refuse(name, value, "a SHA-256 in 64 hexadecimal digits")
        return value

    def wholes(self, name: str, low: int) -> tuple[int, ...]:
        """A list of whole numbers, each at least `low`."""
        value = self._take(name)
        if not isinstance(value, list):
            self.refuse(name, value, "a list of whole numbers")
        numbered = Fields({f"{name}[{place}]": item for place, item in enumerate(value)}, self._path)
        return tuple(numbered.whole(place, low) for place in numbered.names())

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self._take(name)
        if not isinstance(value, list):
            self.refuse(name, value, "a list of texts")
        texts = tuple(item for item in value if isinstance(item, str))
        if len(texts) != len(value):
            self.refuse(name, value, "a list of texts")
        return texts

    def inner(self, name: str) -> "Fields":
        """An object."""
        value = self._take(name)
        if not isinstance(value, dict):
            self.refuse(name, value, "an object")
        return Fields(value, f"{self._path}{name}.")

    def inner_or_none(self, name: str) -> "Fields | None":
        """An object or null."""
        return None if self._take(name) is None else self.inner(name)

    def inners(self, name: str) -> tuple["Fields", ...]:
        """A list of objects."""
        value = self._take(name)
        if not isinstance(value, list):
            self.refuse(name, value, "a list of objects")
        numbered = Fields({f"{name}[{place}]": item for place, item in enumerate(value)}, self._path)
        return tuple(numbered.inner(place) for place in numbered.names())

    def plain(self, name: str) -> Mapping[str, object]:
        """An object whose fields are not looked at."""
        return self.inner(name)._values

    def demand_no_more(self) -> None:
        """Refuse fields that nobody took: they mean something to whoever wrote them."""
        left = sorted(set(self._values) - self._taken)
        if left:
            self.refuse(_plain_name(left[0]), self._values[left[0]], "no such field")

    def refuse(self, name: str, value: object, wanted: str) -> NoReturn:
        """Raise FieldError about the field `name`."""
        raise FieldError(f"field {self._path}{name} is {_shown(value)}, wanted {wanted}")

    def _take(self, name: str) -> object:
        if name not in self._values:
            raise FieldError(f"field {self._path}{name} is missing")
        self._taken.add(name)
        return self._values[name]


def _without_doubles(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, value in pairs:
        if name in values:
            raise FieldError(f"field {_plain_name(name)} is there twice")
        values[name] = value
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise FieldError(f"{name} is not a JSON value")


def _plain_name(name: str) -> str:
    """A name from the content, as a terminal takes it: no control characters, no halves of surrogate pairs."""
    return name if name.isprintable() and len(name) <= _SHOWN_CHARACTERS else _shown(name)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
