"""Whether two spellings are one value: masks and lists of processors have several. Pure."""

import re

from clockgated.tuning.model import Area, Knob

_MOST_CPUS = 1 << 16


def is_same(knob: Knob, one: str | None, other: str | None) -> bool:
    """Whether `knob` holds the same with either; None, an unknown value, is the same as nothing."""
    if one is None or other is None:
        return False
    if one == other:
        return True
    if knob.area is Area.IRQ:
        return _cpus(one) == _cpus(other) is not None
    # The kernel writes a mask as wide as it has processors, in groups of eight digits.
    is_mask = knob.area is Area.SYSFS and knob.key.endswith("_cpus")
    return is_mask and _mask(one) == _mask(other) is not None


def _mask(text: str) -> int | None:
    digits = text.replace(",", "")
    return int(digits, 16) if re.fullmatch(r"[0-9a-fA-F]{1,16384}", digits) else None


def _cpus(text: str) -> frozenset[int] | None:
    if not re.fullmatch(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*", text):
        return None
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), min(int(last or first), _MOST_CPUS) + 1))
    return frozenset(found)
