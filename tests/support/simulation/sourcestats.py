"""What chronyd keeps of one server: samples against its own cooked clock, and the line through them."""

import statistics
from dataclasses import dataclass, replace

from support.simulation.regression import LEAST_SAMPLES, Line, best_line, t_quantile

_MOST_SAMPLES = 64
_SD_TO_DISTANCE = 0.7
_PRECISION_NS = 60.0
_LEAST_SKEW, _MOST_SKEW = 1e-12, 1.0
_SAMPLES_TO_REFUSE = 6
_DELAY_SDS = 10
_NS_PER_S = 1e9


@dataclass(frozen=True)
class Sample:
    """One exchange: when, the local clock's lead, what it is worth, and when by the cooked clock (ns)."""

    at_s: float
    offset_ns: float
    delay_ns: float
    dispersion_ns: float
    root_delay_ns: float
    root_dispersion_ns: float
    stamp_ns: float

    @property
    def distance_ns(self) -> float:
        """How far off the offset can be because of the path."""
        return self.delay_ns / 2 + self.dispersion_ns


class SourceStats:
    """Samples of one server, and the estimates from them. Frequencies are ratios, positive: the local clock gains."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.older: list[Sample] = []
        self.line: Line | None = None
        self.frequency = 0.0
        self.skew = 2e-3
        self.offset_sd_ns = 4 * _NS_PER_S
        self._offset_ns = 0.0
        self._at_s = 0.0

    def predicted_ns(self, now_s: float) -> float:
        """The offset to be expected now; 0 without samples."""
        if self.line is None:
            return self.samples[-1].offset_ns if self.samples else 0.0
        return self._offset_ns + (now_s - self._at_s) * self.frequency * _NS_PER_S

    def admits(self, now_s: float, offset_ns: float, delay_ns: float, clock_error: float) -> bool:
        """chronyd's test C: a delay that sticks out is refused, unless the offset sticks out by more."""
        if self.line is None or len(self.samples) < _SAMPLES_TO_REFUSE:
            return True
        ago_ns = (now_s - self._at_s) * _NS_PER_S
        allowed_ns = self.line.spread * _DELAY_SDS + ago_ns * (self.skew + clock_error)
        excess_ns = (delay_ns - min(one.delay_ns for one in (*self.older, *self.samples))) / 2
        error_ns = abs(offset_ns - self.predicted_ns(now_s))
        return excess_ns <= allowed_ns or error_ns - excess_ns > allowed_ns

    def add(self, sample: Sample) -> None:
        """Take one more sample and draw the line again."""
        self.samples = [*self.samples, sample][-_MOST_SAMPLES:]
        every = [*self.older, *self.samples]
        x = [one.at_s - sample.at_s for one in every]
        y = [one.offset_ns for one in every]
        self.line = best_line(x, y, self._weights(), len(self.older))
        self._at_s = sample.at_s
        if self.line is None:
            return
        self.frequency = self.line.slope / _NS_PER_S
        skew = self.line.slope_sd * t_quantile(self.line.freedom) / _NS_PER_S
        self.skew = max(_LEAST_SKEW, min(_MOST_SKEW, skew))
        self._offset_ns, self.offset_sd_ns = self.line.at_zero, self.line.at_zero_sd
        self.samples = every[-self.line.used :]
        self.older = every[max(0, len(every) - 2 * self.line.used) : len(every) - self.line.used]

    def root_distance_ns(self) -> tuple[float, float]:
        """Root delay and root dispersion of the best sample kept, aged to the newest one."""
        best = min(self.samples, key=lambda one: self._aged_ns(one) + one.root_delay_ns / 2)
        return best.root_delay_ns, self._aged_ns(best) + self.offset_sd_ns

    def slewed(self, now_s: float, frequency: float, offset_ns: float) -> None:
        """The cooked clock was corrected by both: express all that is known in the new one."""
        self.samples = [_moved(one, now_s, frequency, offset_ns) for one in self.samples]
        self.older = [_moved(one, now_s, frequency, offset_ns) for one in self.older]
        self._offset_ns += (now_s - self._at_s) * frequency * _NS_PER_S - offset_ns
        self.frequency -= frequency

    def _aged_ns(self, sample: Sample) -> float:
        return sample.root_dispersion_ns + (self._at_s - sample.at_s) * _NS_PER_S * self.skew

    def _weights(self) -> list[float]:
        distances_ns = [one.distance_ns for one in self.samples]
        if len(distances_ns) < LEAST_SAMPLES:
            return []
        least_ns = min(distances_ns)
        sd_ns = (statistics.median(distances_ns) - least_ns) / _SD_TO_DISTANCE
        sd_ns = max(_PRECISION_NS, min(sd_ns, least_ns))
        least_ns += _PRECISION_NS
        return [(1 + max(0.0, one - least_ns) / sd_ns) ** 2 for one in distances_ns]


def _moved(sample: Sample, now_s: float, frequency: float, offset_ns: float) -> Sample:
    moved_ns = (now_s - sample.at_s) * frequency * _NS_PER_S - offset_ns
    return replace(sample, offset_ns=sample.offset_ns + moved_ns, stamp_ns=sample.stamp_ns + moved_ns)
