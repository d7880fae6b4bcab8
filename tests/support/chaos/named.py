"""The faults that have a name: each alone, at each point of a step and of a save. Pure."""

from support.chaos.phases import LEADER_ONLY, PHASES
from support.chaos.scenario import (
    CONFIG,
    DAMAGES,
    DESYNC,
    DONE,
    PEER_LOST,
    STOPPED,
    STOPPED_UNSAVED,
    Deed,
    Scenario,
)

# A forward of two micro-batches lasts as long as a fault of a second needs to be met by several steps.
_SLOW_S = 0.04
_FROZEN_AT = (
    "in the vote", "in the all-reduce", "before the update", "before the save vote", "gathering states", "staging",
    "before COMMIT", "before the rename", "before the last COMMIT", "before EXIT",
)  # fmt: skip
_TERM_AT = ("accumulating", "in the vote", "in the all-reduce", "before the save vote", "staging", "before EXIT")
_LONG_S = 0.1
_MENDING = ("--on_divergence", "broadcast")
_BACKGROUND = ("staging", "before the manifest", "before COMMIT", "before the rename", "after the rename")
# Steps by which a phase has been come through: old checkpoints leave at the third save, EXIT comes after the last step.
_STEP = {"rotating": 8, "before rotation": 8, "before EXIT": 12}


def named() -> tuple[Scenario, ...]:
    """All of them, in the order of the table."""
    rooms = (_ranks, _daemons, _impostors, _clocks, _network, _disk, _background, _homes, _processes)
    return tuple(scenario for room in rooms for scenario in room())


def _ranks() -> list[Scenario]:
    killed = [
        Scenario(f"rank killed {phase}", (_at(phase, "SIGKILL"),), (PEER_LOST,)) for phase in PHASES
    ]  # fmt: skip
    leader = [
        Scenario(f"rank 0 killed {phase}", (_at(phase, "SIGKILL", rank=0),), (PEER_LOST,))
        for phase in ("in the vote", "in the all-reduce", "before COMMIT")
    ]
    frozen = [Scenario(f"rank frozen {phase}", (_at(phase, "SIGSTOP"),), (PEER_LOST,)) for phase in _FROZEN_AT]
    paused = [
        Scenario(f"rank paused for a second {phase}", (_at(phase, "SIGSTOP", for_s=1.0),))
        for phase in ("in the vote", "in the all-reduce", "staging")
    ]
    asked = [
        Scenario(
            f"SIGTERM to one rank {phase}", (_at(phase, "SIGTERM"),), (DONE if phase == "before EXIT" else STOPPED,)
        )
        for phase in _TERM_AT
    ]
    spoilt = Deed("weights", phase="before the save")
    return [
        *killed,
        *leader,
        Scenario(
            "one of three ranks killed in the all-reduce", (_at("in the all-reduce", "SIGKILL"),), (PEER_LOST,), ranks=3
        ),
        Scenario(
            "one of four ranks frozen in the vote", (_at("in the vote", "SIGSTOP", rank=2),), (PEER_LOST,), ranks=4
        ),
        *frozen,
        *paused,
        *asked,
        Scenario("SIGUSR1 to one rank", (_at("in the vote", "SIGUSR1"),), seen="checkpoint_saved"),
        Scenario("a weight of one rank is spoilt", (spoilt,), (STOPPED_UNSAVED,), "checkpoint_refused"),
        Scenario("a weight of one rank is spoilt and mended", (spoilt,), (DONE,), "adapter_repaired", flags=_MENDING),
        Scenario("rank of another protocol version", ends=(DESYNC,), versions=((1, 99),)),
    ]


def _at(phase: str, what: str, *, rank: int | None = None, for_s: float = 0.0) -> Deed:
    own = (0 if phase in LEADER_ONLY else 1) if rank is None else rank
    return Deed(what, phase=phase, rank=own, step=_STEP.get(phase, 5), for_s=for_s)


def _daemons() -> list[Scenario]:
    def one(name: str, value: str, ends: int, seen: str = "", *, policy: str = "hold", for_s: float = 0.0) -> Scenario:
        return Scenario(
            name,
            (Deed("daemon", value, for_s=for_s),),
            (ends,),
            seen,
            on_unknown=policy,
            pace_s=_SLOW_S,
        )  # fmt: skip

    return [
        one("daemon killed, unknown means hold", "SIGKILL", STOPPED, "hold"),
        one("daemon killed, unknown means warn", "SIGKILL", DONE, policy="warn"),
        one("daemon killed, unknown means stop", "SIGKILL", STOPPED, "stop", policy="stop"),
        one("daemon killed and back after a second", "SIGKILL", DONE, "hold", for_s=1.0),
        one("daemon restarted", "restart", DONE),
        one("daemon asked to stop", "SIGTERM", STOPPED, "hold"),
        one("daemon frozen", "SIGSTOP", STOPPED, "hold"),
        one("daemon frozen for a second", "SIGSTOP", DONE, "hold", for_s=1.0),
        Scenario(
            "daemons of all ranks killed",
            (Deed("daemon", "SIGKILL", target=0), Deed("daemon", "SIGKILL", target=1)),
            (STOPPED,),
            "hold",
            pace_s=_SLOW_S,
        ),
        Scenario(
            "daemon killed while a checkpoint is staged",
            (Deed("daemon", "SIGKILL", phase="staging", rank=0, target=1),),
            (STOPPED,),
            "hold",
            pace_s=_SLOW_S,
        ),
        Scenario("leases broken by the operator", (Deed("lease"),), pace_s=_SLOW_S),
        Scenario("flood of leases", (Deed("flood"),), pace_s=_SLOW_S),
    ]


def _impostors() -> list[Scenario]:
    def one(kind: str, ends: int, seen: str = "", for_s: float = 0.0) -> Scenario:
        name = _IMPOSTORS[kind] + (", and the daemon back after a second" if for_s else "")
        return Scenario(name, (Deed("impostor", kind, for_s=for_s),), (ends,), seen, pace_s=_SLOW_S)

    harmful = [one(kind, STOPPED, "hold") for kind in _IMPOSTORS if kind not in _BELIEVED]
    return [*harmful, one("noise", DONE, "hold", for_s=1.0), *(one(kind, DONE) for kind in _BELIEVED)]


_IMPOSTORS = {
    "noise": "garbage instead of replies",
    "mute": "a socket that accepts and says nothing",
    "slow": "replies after two seconds",
    "future": "readings from the future",
    "backwards": "readings that expired before they were made",
    "negative": "a bound below zero",
    "stale": "the same reading for ever",
    "unheard": "a state of no known protocol",
    "hopeless": "a bound of ten seconds",
    "lenient": "PROCEED for a bound of ten seconds",
    "perfect": "a bound of a nanosecond",
}
# Nothing in these tells them from a good clock, and no gradient depends on one.
_BELIEVED = ("future", "perfect")


def _clocks() -> list[Scenario]:
    def drill(name: str, value: str, ends: int, seen: str = "", for_s: float = 1.0) -> Scenario:
        return Scenario(name, (Deed("drill", value, for_s=for_s),), (ends,), seen, pace_s=_SLOW_S)

    bump = Deed("drill", "step", target=0, after_s=0.5)
    return [
        drill("clock off by 200 ms for a second", "offset", DONE, "hold"),
        drill("clock off by 200 ms for good", "offset", STOPPED, "hold", for_s=60.0),
        drill("time source frozen for a second", "freeze", DONE),
        drill("time source frozen for good", "freeze", DONE, for_s=60.0),
        drill("clock stepped by an hour", "step", DONE),
        Scenario("clock of one rank jumps by an hour and its daemon sees nothing", (Deed("wall"),), (STOPPED,), "hold"),
        Scenario("epoch of one rank rises while all hold for another", (Deed("drill", "offset", for_s=1.0), bump),
                 (DONE,), "hold", pace_s=_SLOW_S),
        Scenario("time server of chronyd cut off", (Deed("chronyd", "server"),), needs=frozenset(("chrony",)),
                 pace_s=_LONG_S),
        Scenario("chronyd frozen", (Deed("chronyd", "client"),), needs=frozenset(("chrony",)), pace_s=_LONG_S),
        Scenario("reference of one node changes", (Deed("reference"),), (STOPPED,), "hold", pace_s=_SLOW_S),
        Scenario("reference of one node changes for a second", (Deed("reference", for_s=1.0),), (DONE,), "hold",
                 pace_s=_SLOW_S),
        Scenario("references of all nodes change one after the other",
                 (Deed("reference", target=0), Deed("reference", target=1, after_s=0.8)), (DONE,), "hold",
                 pace_s=_SLOW_S),
    ]  # fmt: skip


def _network() -> list[Scenario]:
    def cut(name: str, phase: str, ends: int, for_s: float = 0.0) -> Scenario:
        deed = Deed("link", "down", phase=phase, rank=0, for_s=for_s)
        return Scenario(name, (deed,), (ends,), needs=frozenset(("namespaces",)))

    return [
        cut("link between ranks down before a vote", "before the vote", PEER_LOST),
        cut("link between ranks down before an all-reduce", "before the all-reduce", PEER_LOST),
        cut("link between ranks down while a checkpoint is staged", "staging", PEER_LOST),
        cut("link between ranks down for a second in a vote", "before the vote", DONE, for_s=1.0),
        cut("link between ranks down for a second in a save", "staging", DONE, for_s=1.0),
    ]


def _disk() -> list[Scenario]:
    def on(name: str, value: str, ends: int, phase: str = "staging") -> Scenario:
        mended = (Deed("disk", "mended", rank=0, step=8),) if ends == DONE else ()
        deeds = (Deed("disk", value, phase=phase, rank=0), *mended)
        return Scenario(name, deeds, (ends,), "checkpoint_failed" if mended else "", needs=frozenset(("disk",)))

    def damaged(damage: str) -> Scenario:
        return Scenario(
            f"between two runs: {damage}",
            (Deed("SIGTERM", phase="in the vote", step=8),),
            (STOPPED,),
            damages=(damage,),
        )

    return [
        on("disk full while a checkpoint is staged", "full", STOPPED_UNSAVED),
        on("disk full before the manifest", "full", STOPPED_UNSAVED, "before the manifest"),
        on("disk full for one save", "full", DONE),
        on("disk read-only", "read-only", STOPPED_UNSAVED),
        on("disk read-only for one save", "read-only", DONE),
        on("disk read-only between COMMIT and the name", "read-only", DONE, "before the rename"),
        *(damaged(damage) for damage in DAMAGES),
    ]


def _background() -> list[Scenario]:
    """Saves that are written while training goes on."""

    def one(name: str, deeds: tuple[Deed, ...], ends: int, seen: str = "") -> Scenario:
        needs = frozenset(("disk",)) if any(deed.what == "disk" for deed in deeds) else frozenset()
        return Scenario(
            f"saving in the background: {name}", deeds, (ends,), seen, flags=("--async_save",), needs=needs, pace_s=0.02
        )

    killed = [one(f"rank killed {phase}", (_at(phase, "SIGKILL"),), PEER_LOST) for phase in _BACKGROUND]
    return [
        one("nothing happens", (), DONE),
        *killed,
        one("rank frozen staging", (_at("staging", "SIGSTOP"),), PEER_LOST),
        one("SIGTERM to one rank while staging", (_at("staging", "SIGTERM"),), STOPPED),
        one("disk full for one save", (Deed("disk", "full", phase="staging", rank=0),
                                       Deed("disk", "mended", rank=0, step=8)), DONE, "checkpoint_failed"),
    ]  # fmt: skip


def _homes() -> list[Scenario]:
    """Ranks that do not share the run folder: each writes its own copy."""

    def one(name: str, deeds: tuple[Deed, ...], ends: int, damages: tuple[str, ...] = ()) -> Scenario:
        needs = frozenset(("homes",))
        return Scenario(f"a run folder for each rank: {name}", deeds, (ends,), damages=damages, needs=needs)

    return [
        one("nothing happens", (), DONE),
        one("rank killed before COMMIT", (_at("before COMMIT", "SIGKILL"),), PEER_LOST),
        one("rank killed before the rename", (_at("before the rename", "SIGKILL", rank=1),), PEER_LOST),
        one("rank killed after the rename", (_at("after the rename", "SIGKILL", rank=1),), PEER_LOST),
        one("SIGTERM to one rank", (_at("in the vote", "SIGTERM"),), STOPPED),
    ]


def _processes() -> list[Scenario]:
    return [
        Scenario("parent of the ranks killed", (Deed("parent", "SIGKILL"),), (PEER_LOST,), needs=frozenset(("parent",)),
                 pace_s=_SLOW_S),
        Scenario("SIGTERM to the launcher", (Deed("launcher", "SIGTERM"),), (STOPPED,), needs=frozenset(("launcher",)),
                 pace_s=_SLOW_S),
        Scenario("rank killed under a launcher that restarts", (_at("in the vote", "SIGKILL"),), (DONE,),
                 needs=frozenset(("launcher",))),
        Scenario("second run in the same folder", (Deed("run", "same"),), (DONE, CONFIG, PEER_LOST), pace_s=_SLOW_S),
        Scenario("second run on the same node", (Deed("run", "other"),), pace_s=_SLOW_S),
    ]  # fmt: skip
