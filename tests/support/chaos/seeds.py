"""A seed to a combination of faults. Pure: the same seed is the same scenario on every machine."""

import random

from support.chaos.phases import LEADER_ONLY, PHASES
from support.chaos.scenario import (
    DAMAGES,
    DONE,
    PEER_LOST,
    SAVE_EVERY,
    SEED_NAME,
    STEPS,
    STOPPED,
    STOPPED_UNSAVED,
    Deed,
    Scenario,
)

_PACES_S = (0.0, 0.02, 0.05)
_SHORT_S = (0.3, 0.7, 1.2)
_CLOCK_DEEDS = ("daemon", "impostor", "drill", "reference", "flood")
_IMPOSTORS = ("noise", "mute", "slow", "future", "backwards", "negative", "stale", "unheard", "hopeless", "perfect")


def seeded(seed: int) -> Scenario:
    """Two to four faults at random points, and now and then damage to the folder before the run is resumed.

    Most of what is random may end a run in several honest ways, so all of those are allowed; what is never allowed (a
    hang, a wrong weight, a broken or lost checkpoint) is for `verdict` to find.
    """
    draw = random.Random(f"clockgate-{seed}")
    ranks = draw.choice((2, 2, 2, 3))
    deeds = tuple(_deed(draw, ranks) for _ in range(draw.randint(2, 4)))
    deeds = _with_one_end(deeds)
    needs = frozenset(("disk",)) if any(deed.what == "disk" for deed in deeds) else frozenset()
    return Scenario(
        name=f"{SEED_NAME}{seed}",
        deeds=deeds,
        ends=(DONE, STOPPED, STOPPED_UNSAVED, PEER_LOST),
        ranks=ranks,
        on_unknown=draw.choice(("hold", "hold", "warn", "stop")),
        flags=("--async_save",) if draw.random() < 0.3 else (),
        damages=(draw.choice(DAMAGES),) if draw.random() < 0.25 else (),
        needs=needs,
        pace_s=draw.choice(_PACES_S),
    )


def _deed(draw: random.Random, ranks: int) -> Deed:
    phase = draw.choice(tuple(PHASES))
    rank = 0 if phase in LEADER_ONLY else draw.randrange(ranks)
    step = STEPS if phase == "before EXIT" else draw.randint(1, STEPS - SAVE_EVERY)
    kind = draw.random()
    for_s = draw.choice((0.0, *_SHORT_S))
    if kind < 0.2:
        return Deed("SIGKILL", phase=phase, rank=rank, step=step)
    if kind < 0.35:
        return Deed("SIGSTOP", phase=phase, rank=rank, step=step, for_s=for_s)
    if kind < 0.5:
        return Deed(draw.choice(("SIGTERM", "SIGUSR1", "SIGUSR2")), phase=phase, rank=rank, step=step)
    if kind < 0.6:
        return Deed("disk", draw.choice(("full", "read-only")), phase=phase, rank=rank, step=step, for_s=for_s)
    return _clock_deed(draw, phase, rank, step, draw.randrange(ranks))


def _clock_deed(draw: random.Random, phase: str, rank: int, step: int, target: int) -> Deed:
    what = draw.choice(_CLOCK_DEEDS)
    values = {
        "daemon": ("SIGKILL", "SIGSTOP", "SIGTERM", "restart"),
        "impostor": _IMPOSTORS,
        "drill": ("freeze", "offset", "step"),
    }
    return Deed(
        what,
        draw.choice(values[what]) if what in values else "",
        phase=phase,
        rank=rank,
        step=step,
        target=target,
        after_s=draw.choice((0.0, 0.0, 0.2)),
        for_s=draw.choice((0.0, *_SHORT_S)) if what != "drill" else draw.choice(_SHORT_S),
    )


def _with_one_end(deeds: tuple[Deed, ...]) -> tuple[Deed, ...]:
    """At most one rank that ends for good: of a job that loses all its ranks nothing is left to be judged."""
    ends = [deed for deed in deeds if deed.is_the_end_of_a_rank]
    return tuple(deed for deed in deeds if deed not in ends[1:])
