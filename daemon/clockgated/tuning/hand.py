"""The hand of tuning: reads and writes one knob, whatever it is. Decides nothing and remembers nothing.

A write is one system call, so that the kernel's refusal is heard: a buffered one reports success, and the error comes
with the close or never. What a knob holds afterwards is for the caller to read.
"""

from typing import Protocol

from clockgated.tuning.model import Knob
from clockgated.tuning.outcome import Trouble


class Hand(Protocol):
    """Reads and writes knobs; values are in the spelling of `model.normal`."""

    def read(self, knob: Knob) -> str | Trouble:
        """What the knob holds."""
        ...

    def write(self, knob: Knob, value: str) -> Trouble | None:
        """Set the knob; None when the kernel took the value, which is no proof that it kept it."""
        ...
