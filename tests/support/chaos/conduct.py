"""Carries out a scenario: nodes with daemons, ranks, the faults at their moments, the end, the resumed run."""

import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from support.chaos.crew import START_S, Crew
from support.chaos.disk import SmallDisk, damage
from support.chaos.evidence import Attempt, collect, lengths
from support.chaos.hands import Hands
from support.chaos.node import Node
from support.chaos.scenario import DONE, STEPS, Deed, Scenario
from support.chaos.scene import Scene
from support.chaos.verdict import Record, Truth
from support.chaos.warm import Warm
from support.chrony import chrony_pair
from support.veth import namespaces

# Everything that a run may wait for, in a row, several times over.
LIMIT_S = 60
_LEASE_S = 3.0
_LOOK_S = 0.005
_PORTS_EACH = 1500
_FIRST_PORT = 20000


class Conductor:
    """Runs scenarios one after the other in `folder`, with daemons of its own; `number` tells conductors apart."""

    def __init__(self, warm: Warm, folder: Path, number: int) -> None:
        self._folder = folder
        self._nodes = [Node(warm, folder / f"n{place}") for place in range(4)]
        self._crew = Crew(warm, self._nodes, _FIRST_PORT + number * _PORTS_EACH)
        self._hands = Hands(warm, self._nodes, self._crew)
        self._runs = count()

    def close(self) -> None:
        """End the daemons."""
        for node in self._nodes:
            node.kill()

    def truth(self, ranks: int) -> Truth:
        """What an undisturbed run of so many ranks gives. Raises RuntimeError when it does not finish."""
        first = self.perform(Scenario("undisturbed", ranks=ranks)).first
        if set(first.codes) != {DONE}:
            raise RuntimeError(f"the undisturbed run of {ranks} ranks ended with {first.codes}: see {self._folder}")
        return Truth(first.digests[STEPS], first.losses)

    def perform(self, scenario: Scenario) -> Record:
        """Run it, and resume it when it did not finish or was damaged."""
        base = self._folder / f"r{next(self._runs)}"
        base.mkdir()
        (base / "scenario.txt").write_text(scenario.describe() + "\n", encoding="utf-8")
        with ExitStack() as stack:
            spaces = stack.enter_context(namespaces()) if "namespaces" in scenario.needs else ()
            disk = SmallDisk(base / "disk") if "disk" in scenario.needs else None
            if disk is not None:
                stack.callback(disk.close)
            chrony = stack.enter_context(chrony_pair(base / "t")) if "chrony" in scenario.needs else None
            run = base / "run" if disk is None else disk.run
            homes = _make_homes(base, scenario.ranks, run) if "homes" in scenario.needs else ()
            scene = Scene(scenario, run, base, faults=True, spaces=spaces, disk=disk, homes=homes, chrony=chrony)
            first = self._start(scene)
            second = None if scene.second is None else self._second(scene, scene.second)
            broken: frozenset[int] = frozenset().union(*(damage(run, kind) for kind in scenario.damages))
            if set(first.codes) == {DONE} and not scenario.damages:
                return Record(scenario, first, second=second)
            again = Scene(scenario, run, base, faults=False, homes=homes)
            return Record(scenario, first, self._start(again), second, broken)

    def _start(self, scene: Scene) -> Attempt:
        recording = "alone" if any(deed.what == "reference" for deed in scene.scenario.deeds) else "usual"
        for node in self._nodes[: scene.scenario.ranks]:
            node.follow(None if scene.chrony is None else scene.chrony.client.socket)
            node.settle(recording)
        before, began = lengths(scene.folder), time.monotonic()
        self._crew.start(scene)
        struck = self._watch(scene, began + (LIMIT_S if "launcher" not in scene.scenario.needs else 2 * START_S))
        codes = tuple(process.code() for process in scene.ranks)
        seconds = time.monotonic() - began
        for process in [*scene.ranks, *([scene.agent] if scene.agent is not None else [])]:
            process.end()
        for process in scene.extra:
            process.wait(LIMIT_S)
        while scene.later:
            scene.do_what_is_due(all_of_it=True)
        outlived = self._leases_left(scene)
        if scene.disk is not None:
            scene.disk.mend()
        others = scene.homes[1:]
        return collect(
            scene.folder,
            before,
            codes=codes,
            struck=struck,
            seconds=seconds,
            others=others,
            leases=outlived,
        )

    def _leases_left(self, scene: Scene) -> int:
        """How many leases are still open when every rank has been gone for three seconds."""
        due = time.monotonic() + _LEASE_S
        while left := sum(len(node.leases()) for node in self._nodes[: scene.scenario.ranks]):
            if time.monotonic() > due:
                return left
            time.sleep(0.05)
        return 0

    def _watch(self, scene: Scene, due: float) -> int:
        """Do what is due until all ranks that can end have ended; returns how many faults struck."""
        waiting = dict(enumerate(scene.scenario.deeds)) if scene.faults else {}
        planned = len(waiting)
        victims = scene.scenario.victims if scene.faults and "launcher" not in scene.scenario.needs else frozenset()
        while time.monotonic() < due:
            for place, deed in list(waiting.items()):
                if Path(f"{scene.mark(place)}.fired").exists():
                    del waiting[place]
                    self._hands.strike(scene, place, deed)
            scene.do_what_is_due()
            # A victim may end in another way before its fault is due.
            missing = [rank for rank, process in enumerate(scene.ranks) if process.code() is None]
            if all(rank in victims and self._has_struck(scene, rank, waiting) for rank in missing):
                break
            time.sleep(_LOOK_S)
        return planned - len(waiting)

    def _has_struck(self, scene: Scene, rank: int, waiting: dict[int, Deed]) -> bool:
        return any(
            deed.is_the_end_of_a_rank and deed.of == rank and place not in waiting
            for place, deed in enumerate(scene.scenario.deeds)
        )

    def _second(self, scene: Scene, run: Path) -> Attempt:
        codes = tuple(process.wait(LIMIT_S) for process in scene.extra)
        for process in scene.extra:
            process.end()
        return collect(run, (0, 0), codes=codes, struck=0, seconds=0.0)


def _make_homes(base: Path, ranks: int, run: Path) -> tuple[Path, ...]:
    """A folder for each rank, and the place where each will see its own."""
    homes = tuple(base / f"home{rank}" for rank in range(ranks))
    for path in (*homes, run):
        path.mkdir()
    return homes
