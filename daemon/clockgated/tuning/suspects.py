"""Who may have changed a knob that was set: named as far as it can be known, from files and running programs. Pure."""

from collections.abc import Sequence

from clockgated.tuning.model import Area, Knob, Owner, OwnerKind

_WRITERS = {
    OwnerKind.TUNED: frozenset({Area.SYSCTL, Area.SYSFS, Area.RINGS, Area.CHANNELS, Area.IRQ}),
    OwnerKind.NETWORK_MANAGER: frozenset({Area.MTU, Area.RINGS, Area.CHANNELS, Area.EEE, Area.QDISC}),
    OwnerKind.IRQBALANCE: frozenset({Area.IRQ}),
}


def suspect(knob: Knob, actual: str, in_file: Owner | None, running: Sequence[Owner]) -> Owner | None:
    """The likely writer of `actual`; None when nobody is known: the kernel does not tell.

    `in_file` is the entry of a sysctl file that wins at boot: with the very value that is there it was applied again.
    """
    if in_file is not None and in_file.value == actual:
        return in_file
    return next((one for one in running if knob.area in _WRITERS.get(one.kind, frozenset())), None)
