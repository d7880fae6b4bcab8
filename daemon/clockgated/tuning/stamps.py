"""Keeping how links stamp packets through a change: a driver may forget it when it resets, and PTP is lost silently."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from clockgated.tuning.journal import LinkStamps
from clockgated.tuning.model import LinkId


class Stamps(Protocol):
    """Reads how links stamp, and brings that back."""

    def read(self, links: Iterable[LinkId]) -> tuple[LinkStamps, ...]:
        """How each link stamps; those that do not tell are left out."""
        ...

    def restore(self, before: Sequence[LinkStamps]) -> None:
        """Bring back what has changed since, and tell in the log."""
        ...
