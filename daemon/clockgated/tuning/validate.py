"""What a knob may be set to. Pure.

The kernel takes what makes no sense: a largest buffer below its default, two numbers where three belong, a probing mode
that does not exist, a fourth number that it forgets. So nothing is written that does not pass here.
"""

import re
from collections.abc import Collection

from clockgated.tuning.model import Area, Change
from clockgated.tuning.values import INT_MAX, value_problem

_MAX_CHARACTERS = 4000  # one page, as the kernel's files take it, with room for the end
_SMALLEST_MTU = 68  # RFC 791
_LARGEST_MTU = 65535

QDISCS = ("fq", "fq_codel", "pfifo", "pfifo_fast")
"""Queueing disciplines that are set: they need no options and drop nothing of an administrator's."""

_CPU_LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


def problem(change: Change, congestion_controls: Collection[str] = ()) -> str | None:
    """Why `change` must not be written, as value seen and value wanted; None when it may be.

    `congestion_controls` are those that the kernel says it has.
    """
    wanted, area = change.wanted, change.knob.area
    if not wanted or len(wanted) > _MAX_CHARACTERS or not wanted.isprintable() or not wanted.isascii():
        return _said(change, f"1 to {_MAX_CHARACTERS} printable ASCII characters")
    if area is Area.SYSCTL:
        fault = value_problem(change.knob.key, wanted, congestion_controls)
        return _shape_problem(change) if fault is None else f"{change.knob.subject} = {fault}"
    if area is Area.MTU:
        return _range_problem(change, _SMALLEST_MTU, _LARGEST_MTU)
    if area in (Area.RINGS, Area.CHANNELS):
        return _range_problem(change, 1, INT_MAX)
    if area is Area.QDISC:
        return None if wanted in QDISCS else _said(change, "one of " + ", ".join(QDISCS))
    if area is Area.EEE:
        return None if wanted in ("on", "off") else _said(change, '"on" or "off"')
    if area is Area.IRQ:
        return None if _CPU_LIST.fullmatch(wanted) else _said(change, "a list of processors such as 0-3,8")
    return _shape_problem(change)


def _range_problem(change: Change, low: int, high: int) -> str | None:
    number = _number(change.wanted)
    return (
        None if number is not None and low <= number <= high else _said(change, f"a whole number from {low} to {high}")
    )


def _shape_problem(change: Change) -> str | None:
    """A knob without a rule of its own keeps its shape: as many words, numbers where numbers are."""
    found, wanted = change.found.split(), change.wanted.split()
    if len(found) != len(wanted):
        return _said(change, f'{len(found)} words, as in "{change.found}"')
    if change.knob.area is not Area.SYSCTL:
        return None  # masks are hexadecimal
    for before, after in zip(found, wanted, strict=True):
        if _number(before) is not None and (number := _number(after)) is not None:
            # By the kernel's custom -1 is "no limit" or "off"; below it a number means something only where one was.
            low = -1 if not before.startswith("-") else -INT_MAX - 1
            if not low <= number <= (1 << 63) - 1:
                return _said(change, f"a number from {low} that the kernel can hold")
        elif _number(before) is not None:
            return _said(change, f'numbers, as in "{change.found}"')
    return None


def _number(word: str) -> int | None:
    # Longer ones do not fit the kernel, and int() would take its time over thousands of digits.
    return int(word) if re.fullmatch(r"-?[0-9]{1,20}", word) else None


def _said(change: Change, wanted: str) -> str:
    return f'{change.knob.subject} = "{change.wanted[:80]}": wanted {wanted}'
