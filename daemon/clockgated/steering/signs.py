"""Signs of life of the time daemons: their answers and their lines, from whichever thread sees them."""

from collections.abc import Mapping

from clockgated import host
from clockgated.clock.model import Evidence, ReasonCode, Silence
from clockgated.sources.base import Source
from clockgated.sources.ptp_feed import LogFeed


class SignsOfLife:
    """When each daemon last answered or printed a line. Every method may be called from any thread."""

    def __init__(self) -> None:
        # Single assignments to a dict are atomic: no lock is needed.
        self._seen_mono_ns: dict[str, int] = {}
        self._answered_mono_ns: dict[str, int] = {}
        self._feeds: Mapping[str, LogFeed] = {}

    def on_answer(self, name: str) -> None:
        """`name` answered when it was asked."""
        self._answered_mono_ns[name] = self._seen_mono_ns[name] = host.mono_ns()

    def on_line(self, name: str, line: str) -> None:
        """Take one line of the output of `name`."""
        self._seen_mono_ns[name] = host.mono_ns()
        feed = self._feeds.get(name)
        if feed is not None:
            feed.feed(line)

    def route(self, feeds: Mapping[str, LogFeed]) -> None:
        """From now on give the lines of each daemon to its feed."""
        self._feeds = dict(feeds)

    def seen_mono_ns(self) -> dict[str, int]:
        """The newest sign of each daemon, CLOCK_MONOTONIC."""
        return dict(self._seen_mono_ns)

    def answered(self) -> frozenset[str]:
        """Who ever answered. Lines tell nothing about that: they may come though all asking fails."""
        return frozenset(self._answered_mono_ns)


class Listened:
    """A source whose every answer is a sign of life of the daemon `name`."""

    def __init__(self, inner: Source, name: str, signs: SignsOfLife) -> None:
        self._inner = inner
        self._name = name
        self._signs = signs
        self.kind = inner.kind

    def read(self) -> Evidence | Silence:
        """See Source."""
        measurement = self._inner.read()
        # An answer that makes no sense is one all the same: whoever gives it does not hang.
        if isinstance(measurement, Evidence) or measurement.reason.code is not ReasonCode.SOURCE_UNREACHABLE:
            self._signs.on_answer(self._name)
        return measurement
