"""Values of this room <-> canonical JSON: sorted keys, no blanks, UTF-8, so that equal values give equal bytes. Pure.

Reading checks types and refuses unknown or missing keys: a journal that somebody edited is an error, not a guess.
"""

import hashlib
import json
import types
from collections.abc import Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from clockgated.errors import ClockgateError
from clockgated.tuning.model import Change

_HASHED_FORMAT = "clockgate tuning plan 1"

T = TypeVar("T")


class CodecError(ClockgateError):
    """JSON that is not the value that was expected. The message names the place, what is there and what was wanted."""


def to_data(value: Any) -> Any:
    """`value` as dicts, lists and plain values. Takes dataclasses, tuples, enumerations and plain values."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [to_data(one) for one in value]
    return value


def to_json(value: Any) -> bytes:
    """Canonical JSON of `value`; the same for equal values."""
    data = to_data(value)
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def from_json(cls: type[T], data: bytes) -> T:
    """The value of dataclass `cls` that `data` spells. Raises CodecError; never another error."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"not JSON: {str(error)[:120]}") from None
    value: T = _read(cls, document, cls.__name__)
    return value


def plan_hash(netns: int, changes: Sequence[Change]) -> str:
    """Hex SHA-256 over the knobs of `changes` with what was found and what is wanted, in their order."""
    content = [_HASHED_FORMAT, netns, [[to_data(one.knob), one.found, one.wanted] for one in changes]]
    return hashlib.sha256(to_json(content)).hexdigest()


def _read(hint: Any, data: Any, place: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _read_union(get_args(hint), data, place)
    if origin is tuple:
        if not isinstance(data, list):
            raise _unlike(place, data, "a list")
        return tuple(_read(get_args(hint)[0], one, f"{place}[{index}]") for index, one in enumerate(data))
    if is_dataclass(hint):
        return _read_fields(hint, data, place)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _read_member(hint, data, place)
    # bool is an int to Python, and an int a fine float.
    is_fit = type(data) is hint or (hint is float and type(data) is int)
    if not is_fit:
        raise _unlike(place, data, hint.__name__)
    return float(data) if hint is float else data


def _read_union(members: tuple[Any, ...], data: Any, place: str) -> Any:
    if data is None and type(None) in members:
        return None
    rest = [member for member in members if member is not type(None)]
    for member in rest:
        if type(data) is member:
            return data
    return _read(rest[0], data, place)


def _read_member(hint: type[Enum], data: Any, place: str) -> Enum:
    try:
        return hint(data)
    except ValueError:
        raise _unlike(place, data, "one of " + ", ".join(str(one.value) for one in hint)) from None


def _read_fields(cls: Any, data: Any, place: str) -> Any:
    if not isinstance(data, dict):
        raise _unlike(place, data, "an object")
    hints = _hints(cls)
    known = {field.name: field for field in fields(cls)}
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise CodecError(f"{place}: unknown key {unknown[0][:60]!r}; known: {', '.join(known)}")
    for name, field in known.items():
        if name not in data and field.default is MISSING:
            raise CodecError(f"{place}: {name} is missing")
    return cls(**{name: _read(hints[name], value, f"{place}.{name}") for name, value in data.items()})


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    # Working them out takes a millisecond, and a journal holds hundreds of records.
    return get_type_hints(cls)


def _unlike(place: str, data: Any, wanted: str) -> CodecError:
    return CodecError(f"{place} is {str(data)[:60]!r}: wanted {wanted}")
