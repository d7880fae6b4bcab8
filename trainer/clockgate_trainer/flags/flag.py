"""What one flag is. Pure; knows no concrete flag."""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, get_args

_Value = TypeVar("_Value")
_KEY = "flag"


class Type(Enum):
    """What the text after a flag is read as; the value is the word that messages use."""

    BOOL = "true or false"
    INT = "a whole number"
    FLOAT = "a number"
    TEXT = "text"
    PATH = "a path"


@dataclass(frozen=True)
class Flag:
    """One row of the table.

    `low` and `high` are inclusive limits of a number. `bare` is the text that a flag without a value stands for; None
    means that it needs one. `unset` is what help shows in place of a default of None. `refused` has pairs of
    a value that is known from elsewhere and no choice here, and the reason.
    """

    name: str
    type: Type
    default: Any
    group: str
    help: str
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    bare: str | None = None
    unset: str = ""
    aliases: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Unsupported:
    """A flag that qlora.py scripts carry and that this version does not honour.

    It is refused by name, unless its value is one of `inert`: then it changes nothing about the run. `inert` None
    means that no value matters, because the flag only acts together with another one that is refused.
    """

    name: str
    type: Type
    inert: tuple[Any, ...] | None
    instead: str = ""


def declare(
    default: _Value,
    group: str,
    text: str,
    *,
    choices: tuple[str, ...] = (),
    low: float | None = None,
    high: float | None = None,
    bare: str | None = None,
    unset: str = "",
    aliases: tuple[str, ...] = (),
    refused: Mapping[str, str] | None = None,
) -> _Value:
    """Declare a dataclass field that is also a flag; its annotation is the flag's type."""
    extra = {
        "group": group,
        "help": text,
        "choices": choices,
        "low": low,
        "high": high,
        "bare": bare,
        "unset": unset,
        "aliases": aliases,
        "refused": tuple((refused or {}).items()),
    }
    return field(default=default, metadata={_KEY: extra})


def flag_of(declared: Field[Any], annotation: Any) -> Flag:
    """Make the table row of a field made by `declare`."""
    kinds = {bool: Type.BOOL, int: Type.INT, float: Type.FLOAT, str: Type.TEXT, Path: Type.PATH}
    wanted = [kind for kind in get_args(annotation) or (annotation,) if kind is not type(None)]
    kind = kinds[wanted[0]]
    extra = dict(declared.metadata[_KEY])
    if kind is Type.BOOL:
        extra["bare"] = "true"
    return Flag(name=declared.name, type=kind, default=declared.default, **extra)
