"""How a launch ended: one exit code and one sentence from the exit codes of all ranks. Pure."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from clockgate_trainer.errors import ExitCode
from clockgate_trainer.outcome import Outcome

# A rank's own verdict on the run, the most telling first; 79 only says that another rank had trouble.
TELLING = (
    (ExitCode.USAGE, "the flags are wrong"),
    (ExitCode.CONFIG, "data, model or daemon are not as asked"),
    (ExitCode.DESYNC, "ranks were not at the same point"),
    (ExitCode.STOPPED_UNSAVED, "stopped without a checkpoint"),
    (ExitCode.STOPPED, "stopped with a checkpoint; start again to go on"),
)
# Whose fault it is, is known to the launcher for these two; the ranks know better in the other cases.
_OWN_FAULT = (ExitCode.USAGE, ExitCode.CONFIG)
_BEFORE_READY = frozenset({-int(signal.SIGTERM), int(ExitCode.PEER_LOST)})


@dataclass(frozen=True)
class Ending:
    """How the ranks of this node ended: one exit code, one sentence, and the ranks at fault as far as known.

    `before_start` says that a stop was asked for before any rank could take a step: what was saved before is all.
    """

    code: int
    reason: str
    ranks: tuple[int, ...] = ()
    before_start: bool = False


@dataclass(frozen=True)
class Standing:
    """The newest checkpoint in a run folder, by its manifest."""

    step: int
    checkpoint: str


def judge(codes: Mapping[int, int], *, stop_asked: bool) -> Ending:
    """One ending for the exit codes of the ranks that did not end with 0; a negative code is minus a signal's number.

    In this order: the most telling of 2, 78, 77, 76 and 75 on any rank; 76 when a stop was asked and signals ended
    all; 79 when a rank was killed, or fell over while another reported 79; else the code of the lowest rank that fell
    over. SIGTERM is what the agent sends to the rest, so a rank that it ended is at fault only if no other rank is.
    """
    if not codes:
        return Ending(ExitCode.DONE, "all ranks are done")
    for code, meaning in TELLING:
        ranks = _with_code(codes, code)
        if ranks:
            return Ending(
                int(code), f"{_named(ranks)} ended with {code:d}: {meaning}", ranks if code in _OWN_FAULT else ()
            )
    if stop_asked and -signal.SIGTERM in codes.values() and _BEFORE_READY.issuperset(codes.values()):
        # A rank that is ready takes SIGTERM as a request: one that it ended had not begun.
        return Ending(ExitCode.STOPPED_UNSAVED, "stopped on request before the first step", before_start=True)
    if stop_asked and all(code < 0 for code in codes.values()):
        return Ending(ExitCode.STOPPED_UNSAVED, "stopped on request before a rank could save")
    killed = {rank: code for rank, code in codes.items() if code < 0}
    loudly = {rank: code for rank, code in killed.items() if code != -signal.SIGTERM}
    fallen = {rank: code for rank, code in codes.items() if code > 0 and code != ExitCode.PEER_LOST}
    if loudly or len(killed) == len(codes):
        guilty = loudly or killed
        told = ", ".join(f"rank {rank} was killed by {_signal_name(-code)}" for rank, code in sorted(guilty.items()))
        return Ending(ExitCode.PEER_LOST, told, tuple(sorted(guilty)))
    told = ", ".join(f"rank {rank} ended with {code}" for rank, code in sorted(fallen.items()))
    if not fallen:
        lost = _with_code(codes, ExitCode.PEER_LOST)
        return Ending(ExitCode.PEER_LOST, f"{_named(lost)} ended with 79: a peer died or did not answer")
    final = ExitCode.PEER_LOST if ExitCode.PEER_LOST in codes.values() else fallen[min(fallen)]
    return Ending(int(final), f"{told}: see its log", tuple(sorted(fallen)))


def with_checkpoint(ending: Ending, standing: Standing | None) -> Ending:
    """75 in place of 76 for a stop before the first step when a checkpoint stands: nothing is lost."""
    if standing is None or not ending.before_start:
        return ending
    return replace(ending, code=int(ExitCode.STOPPED), reason=f"{ending.reason}; {standing.checkpoint} stands")


def complete(found: Outcome | None, ending: Ending, standing: Standing | None = None) -> Outcome:
    """What a rank wrote, if any did, with what only the launcher knows: its code, the ranks that it saw fall, and the
    newest checkpoint where no rank lived to name it.
    """
    if found is None:
        found = Outcome(code=ending.code, reason=ending.reason, step=None, checkpoint=None, ranks=ending.ranks)
    if standing is not None and found.checkpoint is None:
        step = standing.step if found.step is None else found.step
        found = replace(found, step=step, checkpoint=standing.checkpoint)
    # All well on this node says nothing about the ranks of another, which may have written it.
    if ending.code == ExitCode.DONE or (found.code == ending.code and set(ending.ranks) <= set(found.ranks)):
        return found
    return replace(
        found, code=ending.code, reason=f"{ending.reason} ({found.reason})", ranks=ending.ranks or found.ranks
    )


def _with_code(codes: Mapping[int, int], wanted: int) -> tuple[int, ...]:
    return tuple(sorted(rank for rank, code in codes.items() if code == wanted))


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
