"""Counters over the last hour, so that a rule sees whether one rose lately rather than since the boot. Pure."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from clockgated.units import NS_PER_S

_SPACING_NS = 600 * NS_PER_S
_REACH_NS = 3600 * NS_PER_S
_MOST_SAMPLES = 32
"""Interfaces that come and go bring new counters each time."""


@dataclass(frozen=True)
class Sample:
    """All counters by name, read just after `at_mono_ns` (CLOCK_MONOTONIC)."""

    at_mono_ns: int
    counters: Mapping[str, int]


class CounterHistory:
    """Samples at least ten minutes apart, of about the last hour; the last one stays, however old it is.

    A counter counts from the oldest sample that has it.
    """

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=_MOST_SAMPLES)

    def is_due(self, now_mono_ns: int) -> bool:
        """Whether a sample is wanted."""
        return not self._samples or now_mono_ns - self._samples[-1].at_mono_ns >= _SPACING_NS

    def note(self, sample: Sample) -> None:
        """Keep a sample that is due, or that has counters which the newest one lacks."""
        if self.is_due(sample.at_mono_ns):
            self._samples.append(sample)
        elif not sample.counters.keys() <= self._samples[-1].counters.keys():
            # What only drivers tell is first seen by a survey: a sample of its own, whatever the spacing.
            self._samples.append(sample)
        while len(self._samples) > 1 and sample.at_mono_ns - self._samples[0].at_mono_ns > _REACH_NS:
            self._samples.popleft()

    def restart(self, sample: Sample) -> None:
        """Forget everything before `sample`: what was counted under other settings says nothing about these."""
        self._samples.clear()
        self._samples.append(sample)

    def before(self, now_mono_ns: int) -> tuple[dict[str, int], float]:
        """Every counter where it is first known, and how long ago the oldest was, s: ({}, 0.0) without a sample."""
        if not self._samples:
            return {}, 0.0
        first: dict[str, int] = {}
        for sample in self._samples:
            first = {**sample.counters, **first}
        return first, (now_mono_ns - self._samples[0].at_mono_ns) / NS_PER_S
