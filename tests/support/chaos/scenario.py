"""What is done to a run, when, and how the run may end. Pure data: printable, and the same for the same seed."""

from dataclasses import dataclass, field

STEPS, SAVE_EVERY, KEPT = 12, 3, 2
DONE, STOPPED, STOPPED_UNSAVED, DESYNC, CONFIG, PEER_LOST = 0, 75, 76, 77, 78, 79
SIGNALS = frozenset(("SIGKILL", "SIGSTOP", "SIGTERM", "SIGUSR1", "SIGUSR2"))
WEIGHTS, WALL = "weights", "wall"
SEED_NAME = "seed "
DAMAGES = ("flip a byte", "truncate the manifest", "remove a file", "stale staging folder", "folder without a manifest")


@dataclass(frozen=True)
class Deed:
    """One fault, done when `rank` comes to `phase` of `step`, or `after_s` later, and undone `for_s` later (0: never).

    `what` is done to the rank or daemon `target` (None: of `rank`): a signal to the rank, or one of: `daemon` and a
    signal or `restart` in `value`; `impostor` of the kind `value` on the daemon's socket; `drill` with freeze, offset
    or step; `chronyd`, the server or the client is frozen; `reference`, the daemon names another one and knows no UTC
    bound; `link`, down; `disk`, full, read-only or mended; `flood` of leases; `lease`, all are broken; `weights`, one
    of the rank's own is spoilt; `wall`, the rank's own clock jumps; `run`, a second one in the same or another folder;
    `parent` and `launcher`, a signal.
    """

    what: str
    value: str = ""
    phase: str = "before the vote"
    rank: int = 1
    step: int = 5
    target: int | None = None
    after_s: float = 0.0
    for_s: float = 0.0

    @property
    def of(self) -> int:
        """The number of the rank or daemon that it is done to."""
        return self.rank if self.target is None else self.target

    @property
    def is_own_signal(self) -> bool:
        """Whether the rank can do it to itself, to the point."""
        return self.what in (*SIGNALS, WEIGHTS, WALL) and self.of == self.rank and not self.after_s

    @property
    def is_the_end_of_a_rank(self) -> bool:
        """Whether the rank that it is done to cannot answer any more."""
        return self.what == "SIGKILL" or (self.what == "SIGSTOP" and not self.for_s)

    def __str__(self) -> str:
        target = "" if self.what in ("link", "disk", "run", "launcher", "parent", "chronyd") else f"of {self.of}"
        done = " ".join(filter(None, (self.what, self.value, target)))
        late = f", {self.after_s:g} s later" if self.after_s else ""
        undone = f", for {self.for_s:g} s" if self.for_s else ""
        return f"{done} when rank {self.rank} is at {self.phase!r} of step {self.step}{late}{undone}"


@dataclass(frozen=True)
class Scenario:
    """One run of `ranks` ranks and their daemons, and how it may end.

    `ends` are the codes that ranks may end with that were not killed; `seen` is an event that rank 0 must have logged,
    which shows that the fault did what it should. `damages` are done to the folder after that, in order; then the run
    is resumed without faults. `needs` are namespaces, disk, homes (a run folder for each rank), chrony, parent and
    launcher. `versions` are pairs of a rank and the protocol version that it speaks. `pace_s` is how long a forward
    takes.
    """

    name: str
    deeds: tuple[Deed, ...] = ()
    ends: tuple[int, ...] = (DONE,)
    seen: str = ""
    ranks: int = 2
    on_unknown: str = "hold"
    flags: tuple[str, ...] = ()
    damages: tuple[str, ...] = ()
    needs: frozenset[str] = field(default_factory=frozenset)
    versions: tuple[tuple[int, int], ...] = ()
    pace_s: float = 0.0

    @property
    def is_seeded(self) -> bool:
        """Whether it is a combination of a seed."""
        return self.name.startswith(SEED_NAME)

    @property
    def victims(self) -> frozenset[int]:
        """Ranks that are killed, or stopped for good."""
        if any(deed.what == "parent" for deed in self.deeds):
            return frozenset()
        return frozenset(deed.of for deed in self.deeds if deed.is_the_end_of_a_rank)

    def describe(self) -> str:
        """Several lines for a person who wants to know what happened, or to do it again."""
        lines = [f"{self.name}: {self.ranks} ranks, on_unknown {self.on_unknown}, ends {self.ends}"]
        lines += [f"  {deed}" for deed in self.deeds]
        lines += [f"  afterwards: {damage}" for damage in self.damages]
        return "\n".join(lines)
