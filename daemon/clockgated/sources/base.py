"""What a source of evidence looks like."""

from typing import Protocol

from clockgated.clock.model import Evidence, Silence, SourceKind


class Source(Protocol):
    """Something that can be asked how good the clock is."""

    @property
    def kind(self) -> SourceKind:
        """What its evidence is derived from."""
        ...

    def read(self) -> Evidence | Silence:
        """Measure once. Blocks for at most the source's own timeout. Trouble is a Silence, never an exception."""
        ...
