"""A network path: how long one packet takes one way, whether it arrives, and when the path changes."""

from support.simulation.parameters import PathRanges, TroubleRanges
from support.simulation.world import Action, World


class Path:
    """The path between the node and its reference. `is_cut` during an outage."""

    def __init__(self, world: World, ranges: PathRanges, trouble: TroubleRanges) -> None:
        self._world = world
        self._ranges = ranges
        self._trouble = trouble
        rng = world.rng
        floor_ns, asymmetry = ranges.floor_ns.draw(rng), ranges.asymmetry.draw(rng)
        self._there_ns, self._back_ns = floor_ns * (1 + asymmetry), floor_ns * (1 - asymmetry)
        self._jitter_ns = floor_ns * ranges.jitter_share.draw(rng)
        self._lost = ranges.lost.draw(rng)
        self.is_cut = False
        self._later(ranges.reroute_every_s, self._reroute)
        self._later(trouble.outage_every_s, self._cut)

    def there_ns(self) -> float:
        """One packet from the node to its reference."""
        return self._there_ns + self._queued_ns()

    def back_ns(self) -> float:
        """One packet from the reference to the node."""
        return self._back_ns + self._queued_ns()

    def loses(self) -> bool:
        """Whether one packet, or one exchange, is lost."""
        return self.is_cut or self._world.rng.random() < self._lost

    def _queued_ns(self) -> float:
        rng = self._world.rng
        queued_ns = rng.expovariate(1 / self._jitter_ns)
        if rng.random() < self._ranges.burst_chance:
            queued_ns += rng.expovariate(1 / (self._jitter_ns * self._ranges.burst_share))
        return queued_ns

    def _later(self, every_s: float | None, act: Action) -> None:
        if every_s is not None:
            self._world.after(self._world.rng.expovariate(1 / every_s), act)

    def _reroute(self) -> None:
        rng, factor = self._world.rng, self._ranges.reroute_factor
        self._there_ns *= factor.draw(rng)
        self._back_ns *= factor.draw(rng)
        low_ns, high_ns = self._ranges.floor_ns.low * 0.01, self._ranges.floor_ns.high * 3
        self._there_ns = max(low_ns, min(high_ns, self._there_ns))
        self._back_ns = max(low_ns, min(high_ns, self._back_ns))
        self._later(self._ranges.reroute_every_s, self._reroute)

    def _cut(self) -> None:
        self.is_cut = True
        self._world.after(self._trouble.outage_s.draw(self._world.rng), self._mend)

    def _mend(self) -> None:
        self.is_cut = False
        self._later(self._trouble.outage_every_s, self._cut)
