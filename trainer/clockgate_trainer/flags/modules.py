"""Which layers --lora_modules means. Pure."""

import re
from collections.abc import Callable

from clockgate_trainer.errors import UsageError

ALL = "all"
_PATTERN_SIGNS = re.compile(r"[\\^$.|?*+()\[\]{}]")


def is_pattern(text: str) -> bool:
    """Whether `text` is a regular expression for whole module names, and not a list of leaf names."""
    return _PATTERN_SIGNS.search(text) is not None


def names_in(text: str) -> tuple[str, ...]:
    """The names in a list separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def choice(text: str) -> Callable[[str], bool]:
    """Tells of a module's whole name whether it is meant. Raises UsageError for a pattern that is none."""
    if text == ALL:
        return lambda _name: True
    if not is_pattern(text):
        names = names_in(text)
        return lambda name: name.rpartition(".")[2] in names
    try:
        pattern = re.compile(text)
    except re.error as err:
        raise UsageError(
            f"--lora_modules is {text!r}: no regular expression ({err}); wanted all, names separated by commas, or a "
            "pattern for whole module names"
        ) from None
    return lambda name: pattern.fullmatch(name) is not None
