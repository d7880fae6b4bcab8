"""An NTP server: what it claims to be worth, and what it is truly off."""

import math
from random import Random

from support.simulation.parameters import NtpRanges

_DRIFT_PPB = 5_000


class Server:
    """The server's clock: off true time by a slow wave that its claims cover. It drifts by at most 5 ppm."""

    def __init__(self, ranges: NtpRanges, rng: Random) -> None:
        self.root_delay_ns = ranges.server_delay_ns.draw(rng)
        self.root_dispersion_ns = ranges.server_dispersion_ns.draw(rng)
        self._period_s = ranges.server_period_s.draw(rng)
        claim_ns = self.root_delay_ns / 2 + self.root_dispersion_ns
        steepest_ns = _DRIFT_PPB * self._period_s / math.tau
        self._height_ns = max(-steepest_ns, min(steepest_ns, ranges.server_error_share.draw(rng) * claim_ns))
        self._phase = rng.uniform(0, math.tau)

    def offset_ns(self, now_s: float) -> float:
        """Ahead of true time by this much."""
        return self._height_ns * math.sin(math.tau * now_s / self._period_s + self._phase)
