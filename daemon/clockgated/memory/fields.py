"""Typed look-ups in JSON that may be anything. Every complaint is a ValueError that names key and value."""

from collections.abc import Mapping
from typing import Any

# CLOCK_REALTIME fits; a foreign number of a million digits does not get to be computed with.
_INT64 = 1 << 63


def read_object(value: object) -> Mapping[str, Any]:
    """`value` as an object with named members."""
    if not isinstance(value, dict):
        raise ValueError(f"{value!r:.80} is not an object")
    return value


def read_int(fields: Mapping[str, Any], key: str) -> int:
    """The whole number at `key`, within int64."""
    value = fields.get(key)
    if type(value) is not int or not -_INT64 <= value < _INT64:
        raise ValueError(f"{key} is {value!r:.80}, wanted a whole number of 64 bits")
    return value


def read_optional_int(fields: Mapping[str, Any], key: str) -> int | None:
    """The whole number at `key`; None when it is null or absent."""
    return None if fields.get(key) is None else read_int(fields, key)


def read_text(fields: Mapping[str, Any], key: str) -> str:
    """The text at `key`."""
    value = fields.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key} is {value!r:.80}, wanted a text")
    return value


def read_optional_text(fields: Mapping[str, Any], key: str) -> str | None:
    """The text at `key`; None when it is null or absent."""
    return None if fields.get(key) is None else read_text(fields, key)


def read_list(fields: Mapping[str, Any], key: str) -> list[Any]:
    """The list at `key`."""
    value = fields.get(key)
    if not isinstance(value, list):
        raise ValueError(f"{key} is {value!r:.80}, wanted a list")
    return value
