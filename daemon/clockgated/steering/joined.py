"""Sources made of others: chronyd with the PTP clocks that feed it, any source with what is to be told beside it."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from clockgated.clock.model import Evidence, Reference, Silence, SourceKind
from clockgated.sources.base import Source
from clockgated.steering.blend import Feeding, blended, followed
from clockgated.steering.notices import Notices, annotated


class Annotated:
    """A source whose measurements carry the notices of the moment."""

    def __init__(self, inner: Source, notices: Callable[[], Notices]) -> None:
        self._inner = inner
        self._notices = notices
        self.kind = inner.kind

    def read(self) -> Evidence | Silence:
        """See Source."""
        return annotated(self._inner.read(), self._notices())


class SteeredBy:
    """A source of a time daemon of ours: `steering_id` is the same over its restarts, which are no change of servo.

    None: nobody steers.
    """

    def __init__(self, inner: Source, steering_id: str | None) -> None:
        self._inner = inner
        self._steering_id = steering_id
        self.kind = inner.kind

    def read(self) -> Evidence | Silence:
        """See Source."""
        measurement = self._inner.read()
        return replace(measurement, steering_id=self._steering_id) if isinstance(measurement, Evidence) else measurement


class Selection:
    """Which source chronyd followed at the last look; None when it did not say."""

    def __init__(self) -> None:
        self.name: str | None = None

    def is_on(self, refid: str) -> bool | None:
        """Whether that is the reference clock `refid`."""
        return None if self.name is None else self.name == refid


class FedChronyd:
    """chronyd and, by its name for each, the PTP clocks that feed it. `selection` is kept for these."""

    kind = SourceKind.CHRONY

    def __init__(self, chrony: Source, feeds: Mapping[str, Source], selection: Selection) -> None:
        self._chrony = chrony
        self._feeds = dict(feeds)
        self._selection = selection
        self._grandmasters: dict[str, Reference | None] = dict.fromkeys(feeds)

    def read(self) -> Evidence | Silence:
        """See Source. Takes the time of all of them, one after the other."""
        chrony = self._chrony.read()
        self._selection.name = chrony.reference.source_name if isinstance(chrony, Evidence) else None
        return blended(chrony, {refid: self._fed(refid, source) for refid, source in self._feeds.items()})

    def _fed(self, refid: str, source: Source) -> Feeding:
        measurement = source.read()
        self._grandmasters[refid] = followed(self._grandmasters[refid], measurement)
        return Feeding(measurement, self._grandmasters[refid])
