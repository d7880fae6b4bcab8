"""From the tables of a configuration file to the frozen settings: types, unknown keys, spellings of choices.

Pure. Every complaint names the key with its section; ranges and combinations are checked by `settings.problems`.
"""

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import NoneType, UnionType
from typing import TypeVar, get_args, get_origin, get_type_hints

from clockgated.manage.settings import ManageSettings, problems

_T = TypeVar("_T")


def read_settings(table: Mapping[str, object]) -> tuple[ManageSettings, tuple[str, ...]]:
    """Settings and everything wrong with them. The order of keys never matters; a key left out takes its default.

    The settings are usable only when there is no complaint.
    """
    complaints: list[str] = []
    settings = _read(ManageSettings, table, "", complaints)
    return settings, tuple(sorted(complaints)) or problems(settings)


def _read(kind: type[_T], table: Mapping[str, object], where: str, complaints: list[str]) -> _T:
    """One dataclass from one table. A field without a default that is missing is complained about and left empty."""
    assert dataclasses.is_dataclass(kind)
    hints = get_type_hints(kind)
    for key in table:
        if key not in hints:
            close = difflib.get_close_matches(str(key), list(hints), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(hints))}"
            complaints.append(f"{where}{key} is not a setting{hint}")
    values: dict[str, object] = {}
    for one in dataclasses.fields(kind):
        if one.name in table:
            values[one.name] = _value(hints[one.name], table[one.name], f"{where}{one.name}", one, complaints)
        elif one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING:
            complaints.append(f"{where}{one.name} is missing: it has no default")
            values[one.name] = ""
    return kind(**values)


def _value(hint: object, value: object, where: str, one: "dataclasses.Field[object]", complaints: list[str]) -> object:
    """The value as its type wants it; after a complaint, the field's default."""
    if isinstance(hint, UnionType):
        (hint,) = (choice for choice in get_args(hint) if choice is not NoneType)
    if get_origin(hint) is tuple:
        return _sequence(get_args(hint)[0], value, where, complaints)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return _read(hint, value, f"{where}.", complaints)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        if value in list(hint):
            return hint(str(value))
        complaints.append(f"{where} is {value!r}: give one of {', '.join(repr(str(choice)) for choice in hint)}")
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif isinstance(hint, type) and type(value) is hint:
        return value
    else:
        complaints.append(f"{where} is {value!r}: give {_spelled(hint)}")
    return None if one.default is dataclasses.MISSING else one.default


def _sequence(item: object, value: object, where: str, complaints: list[str]) -> tuple[object, ...]:
    """A list of plain values or of tables; for a table of which only `host` is said, the bare name does."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        complaints.append(f"{where} is {value!r}: give a list")
        return ()
    found: list[object] = []
    for index, entry in enumerate(value):
        place = f"{where}[{index}]"
        if isinstance(item, type) and dataclasses.is_dataclass(item):
            if isinstance(entry, str):
                found.append(_read(item, {"host": entry}, f"{place}.", complaints))
            elif isinstance(entry, Mapping):
                found.append(_read(item, entry, f"{place}.", complaints))
            else:
                complaints.append(f"{place} is {entry!r}: give a host name or a table with host")
        elif isinstance(entry, str):
            found.append(entry)
        else:
            complaints.append(f"{place} is {entry!r}: give a text")
    return tuple(found)


def _spelled(hint: object) -> str:
    names = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
    return names.get(hint, "a table") if isinstance(hint, type) else "a table"
