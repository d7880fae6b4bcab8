"""One simulated node under the daemon's real cycle: measures, publishes, and is audited all the while."""

from random import Random

from clockgated.clock.bound import BoundPolicy, chrony_evidence
from clockgated.clock.model import Evidence, Reason, ReasonCode, Silence, SourceKind
from clockgated.clock.ptp_bound import PtpLook, PtpPolicy, Stamps, judge
from clockgated.clock.ptp_window import PtpWindow
from clockgated.clock.state import StatePolicy, reading_of, start
from clockgated.cycle import Cycle
from clockgated.drill import DrillBoard
from clockgated.publish import Publisher
from support.simulation.audit import Audit, Tally
from support.simulation.chronyd import Chronyd
from support.simulation.linuxptp import Phc2sys, Ptp4l
from support.simulation.parameters import SCENARIOS, DaemonRanges, NtpRanges, PtpRanges, Scenario, TroubleRanges
from support.simulation.path import Path
from support.simulation.world import Action, Looks, World

_NODE = "simulated"
_TABLE_UTC_OFFSET_S = 37
_SILENT = Reason(ReasonCode.SOURCE_UNREACHABLE, "no answer")


class _Asking:
    """What both sources share: an answer that takes a while, or does not come."""

    def __init__(self, world: World, ranges: DaemonRanges, rng: Random) -> None:
        self._world = world
        self._ranges = ranges
        self._rng = rng

    def _wait(self) -> None:
        rng, ranges = self._rng, self._ranges
        is_slow = rng.random() < ranges.slow_answer_chance
        self._world.pass_s((ranges.slow_answer_s if is_slow else ranges.answer_s).draw(rng) / 2)

    def _is_silent(self) -> bool:
        return self._rng.random() < self._ranges.silence_chance


class ChronySource(_Asking):
    """The real judgement of a simulated chronyd."""

    kind = SourceKind.CHRONY

    def __init__(self, world: World, ranges: DaemonRanges, rng: Random, chronyd: Chronyd) -> None:
        super().__init__(world, ranges, rng)
        self._chronyd = chronyd
        self._policy = BoundPolicy(assumed_clockerror_ppb=chronyd.max_clock_error_ppb)

    def forget(self) -> bool:
        """See sources.chronyc.ChronycSource."""
        if self._is_silent():
            return False
        self._chronyd.forget()
        return True

    def read(self) -> Evidence | Silence:
        """See sources.base.Source."""
        as_of_boot_ns = self._world.boot_ns()
        self._wait()
        report = self._chronyd.report()
        self._wait()
        if self._is_silent():
            return Silence(self.kind, as_of_boot_ns, _SILENT)
        return chrony_evidence(
            report,
            as_of_boot_ns=as_of_boot_ns,
            wall_ns=self._world.wall_ns(),
            policy=self._policy,
            node_id=_NODE,
            steering_id="chronyd",
        )


class PtpNodeSource(_Asking):
    """The real judgement of a simulated ptp4l, with our own look at both clocks."""

    kind = SourceKind.PTP

    def __init__(self, world: World, ranges: DaemonRanges, rng: Random, ptp4l: Ptp4l, phc2sys: Phc2sys | None) -> None:
        super().__init__(world, ranges, rng)
        self._ptp4l = ptp4l
        self._phc2sys = phc2sys
        self._policy = PtpPolicy(stamps=Stamps.HARDWARE if phc2sys else Stamps.SOFTWARE)
        self._window = PtpWindow()

    def read(self) -> Evidence | Silence:
        """See sources.base.Source."""
        as_of_boot_ns = self._world.boot_ns()
        self._wait()
        report = self._ptp4l.report()
        self._wait()
        if self._is_silent():
            return Silence(self.kind, as_of_boot_ns, _SILENT)
        look = PtpLook(
            as_of_boot_ns=as_of_boot_ns,
            now_ns=self._ptp4l.local_ns(),
            system=self._phc2sys.measured(self._rng) if self._phc2sys else None,
            correction_ppb=self._ptp4l.clock.adjust_ppb,
            table_utc_offset_s=_TABLE_UTC_OFFSET_S,
            steering_id="ptp4l",
        )
        judgement = judge(report, look, self._window, self._policy)
        self._window = judgement.window
        return judgement.evidence


def simulate(name: str, seed: int, cycles: int) -> Tally:
    """Run scenario `name` for `cycles` cycles of the daemon; the same arguments give the same tally.

    World and daemon have dice of their own: what happens to a node does not depend on how it is looked at.
    """
    scenario = SCENARIOS[name]
    rng = Random(f"{name} {seed}")
    start_ns = rng.choice((-1, 1)) * scenario.servo.start_offset_ns.draw(rng)
    world = World(rng.getrandbits(64), scenario.oscillator, start_ns)
    _trouble(world, scenario.trouble)
    source, accuracy_ns = _source(world, scenario, rng)
    looks, policy = Looks(world, scenario.daemon, rng), StatePolicy()
    publisher = Publisher(reading_of(start(source.kind, world.boot_ns()), _NODE, policy))
    own_steering = rng.random() < scenario.daemon.own_steering_chance
    cycle = Cycle(
        source=source,
        publisher=publisher,
        drills=DrillBoard(),
        policy=policy,
        boot_id=_NODE,
        own_steering=own_steering,
        forget=source.forget if own_steering and isinstance(source, ChronySource) else None,
        stamp=looks.stamp,
        rate=looks.rate,
        kernel=looks.kernel,
        mono_ns=world.mono_ns,
    )
    audit = Audit(f"{name} {seed}", world, rng.uniform(-1, 1) * accuracy_ns)
    world.watch = audit.look
    for _ in range(cycles):
        began_s = world.now_s
        audit.published(cycle.run_once())
        is_stalled = rng.random() < scenario.daemon.stall_chance
        pause_s = scenario.daemon.interval_s + (scenario.daemon.stall_s.draw(rng) if is_stalled else 0.0)
        world.pass_s(max(0.0, began_s + pause_s - world.now_s))
    return audit.tally


def _source(world: World, scenario: Scenario, rng: Random) -> tuple[ChronySource | PtpNodeSource, int]:
    """The source, and what its reference is worth against UTC, ns."""
    path = Path(world, scenario.path, scenario.trouble)
    match scenario.servo:
        case NtpRanges() as ranges:
            return ChronySource(world, scenario.daemon, rng, Chronyd(world, ranges, path)), 0
        case PtpRanges() as ranges:
            ptp4l = Ptp4l(world, ranges, path, scenario.oscillator)
            phc2sys = Phc2sys(world, ranges, ptp4l) if ranges.is_hardware else None
            return PtpNodeSource(world, scenario.daemon, rng, ptp4l, phc2sys), ranges.accuracy_ns


def _trouble(world: World, ranges: TroubleRanges) -> None:
    """Let a stranger set the wall clock now and then, and the node go to sleep."""

    def step() -> None:
        world.step(world.rng.choice((-1, 1)) * ranges.step_ns.draw(world.rng))

    def sleep() -> None:
        error_ns = world.rng.choice((-1, 1)) * ranges.sleep_error_ns.draw(world.rng)
        world.sleep(ranges.sleep_s.draw(world.rng), error_ns)

    _now_and_then(world, ranges.step_every_s, step)
    _now_and_then(world, ranges.sleep_every_s, sleep)


def _now_and_then(world: World, every_s: float | None, act: Action) -> None:
    if every_s is None:
        return

    def once() -> None:
        act()
        world.after(world.rng.expovariate(1 / every_s), once)

    world.after(world.rng.expovariate(1 / every_s), once)
