"""What one start of the ranks of a scenario consists of, while it runs."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from support.chaos.disk import SmallDisk
from support.chaos.scenario import Scenario
from support.chaos.warm import Process
from support.chrony import ChronyPair
from support.veth import Namespace


@dataclass
class Scene:
    """`run` is the run folder as the ranks see it, `homes` where each has its own, `marks` a folder beside it for logs.

    With `faults` the deeds of the scenario are done. `agent` is the parent of the ranks where they have one, `extra`
    are the ranks of a second run, in the folder `second`. `later` holds what is due at a time of CLOCK_MONOTONIC, s.
    """

    scenario: Scenario
    run: Path
    marks: Path
    faults: bool
    spaces: tuple[Namespace, ...] = ()
    homes: tuple[Path, ...] = ()
    disk: SmallDisk | None = None
    chrony: ChronyPair | None = None
    ranks: list[Process] = field(default_factory=list)
    agent: Process | None = None
    extra: list[Process] = field(default_factory=list)
    second: Path | None = None
    later: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """The run folder of rank 0 as it is seen from here."""
        return self.homes[0] if self.homes else self.run

    @property
    def needs(self) -> frozenset[str]:
        """As in Scenario; a start without faults needs nothing."""
        return self.scenario.needs if self.faults else frozenset()

    def mark(self, place: int) -> str:
        """Where the deed at `place` says that it strikes, and that it is done."""
        return str(self.marks / f"deed{place}")

    def plan(self, after_s: float, action: Callable[[], None]) -> None:
        """Do `action` so much later."""
        self.later.append((time.monotonic() + after_s, action))

    def do_what_is_due(self, *, all_of_it: bool = False) -> None:
        """Do what was planned for before now, or all of it at the end."""
        now = time.monotonic()
        ready = [action for when, action in self.later if all_of_it or when <= now]
        self.later = [(when, action) for when, action in self.later if not all_of_it and when > now]
        for action in ready:
            action()
