"""Who is slow, and whose clock is wrong: two faults that look alike in stamps. No I/O; time is in the rows.

How long a rank works is counted by its own CLOCK_MONOTONIC, which no clock error touches; whether its clock is wrong is
proven by stamps, which its speed does not touch. Every rank finds the same from the same rows.
"""

from bisect import bisect_left
from dataclasses import dataclass

from clockgate_trainer.gate.model import ABSENT, Decision

# Well outside what ranks with unequal rows do to each other, for long enough that it is no hiccup.
_SLOW_RATIO = 1.5
_LEAST_NS = 5_000_000
_STEPS = 5
# A lie shows only in votes in which the row of the liar is late enough: a few clean ones do not clear it.
_CLEAN_STEPS = 20


@dataclass(frozen=True)
class Finding:
    """One sentence about a rank, for the log: `event` is slow_rank, slow_rank_over, skewed_clock or skewed_clock_over.

    `step_ns` is how long the rank worked on the last step, `others_ns` the median of the other ranks; None where
    they did not tell.
    """

    event: str
    ranks: tuple[int, ...]
    step_ns: int | None
    others_ns: int | None
    detail: str


class Pace:
    """Watches one job's decisions in their order. A rank counts as slow after 5 slow steps in a row."""

    def __init__(self) -> None:
        self._slow_steps: dict[int, int] = {}
        self._slow: set[int] = set()
        self._skewed: tuple[int, ...] = ()
        self._clean_steps = 0

    def observe(self, decision: Decision) -> tuple[Finding, ...]:
        """What changed with this step's decision; once per step, not per poll of a hold."""
        times_ns = {
            rank: row.step_duration_ns for rank, row in enumerate(decision.rows) if row.step_duration_ns != ABSENT
        }
        others_ns = _medians_of_others(times_ns)
        return (*self._clocks(decision, times_ns, others_ns), *self._speeds(decision, times_ns, others_ns))

    def _clocks(self, decision: Decision, times_ns: dict[int, int], others_ns: dict[int, int | None]) -> list[Finding]:
        named = decision.disproved_ranks
        self._clean_steps = 0 if named else self._clean_steps + 1
        if self._skewed and self._clean_steps >= _CLEAN_STEPS:
            before, self._skewed = self._skewed, ()
            detail = f"the clock of {_ranks(before)} is no longer disproved by the stamps of the vote"
            return [Finding("skewed_clock_over", before, None, None, detail)]
        if set(named) <= set(self._skewed):
            return []
        self._skewed = tuple(sorted({*self._skewed, *named}))
        who = _ranks(named) if len(named) == 1 else f"one of {_ranks(named)}"
        slow = [rank for rank in named if _is_slow(times_ns.get(rank), others_ns.get(rank))]
        pace = f"{_ranks(tuple(slow))} is slow as well" if slow else "it is not slow"
        told = named[0] if len(named) == 1 else None
        step_ns, rest_ns = (None, None) if told is None else (times_ns.get(told), others_ns.get(told))
        detail = f"the clock of {who} is outside its bound, by the stamps of the vote; by its own steps {pace}"
        return [Finding("skewed_clock", named, step_ns, rest_ns, detail)]

    def _speeds(self, decision: Decision, times_ns: dict[int, int], others_ns: dict[int, int | None]) -> list[Finding]:
        findings = []
        for rank, step_ns in times_ns.items():
            rest_ns = others_ns[rank]
            slow = _is_slow(step_ns, rest_ns)
            self._slow_steps[rank] = self._slow_steps.get(rank, 0) + 1 if slow else 0
            if slow and self._slow_steps[rank] >= _STEPS and rank not in self._slow:
                self._slow.add(rank)
                clock = "disproved too" if rank in decision.disproved_ranks else "not to blame"
                detail = (
                    f"rank {rank} is slow: {_STEPS} steps in a row, the last {step_ns / 1e6:.1f} ms of its own work "
                    f"where the others take {(rest_ns or 0) / 1e6:.1f} ms; its clock is {clock}"
                )
                findings.append(Finding("slow_rank", (rank,), step_ns, rest_ns, detail))
            elif not slow and rank in self._slow:
                self._slow.remove(rank)
                findings.append(Finding("slow_rank_over", (rank,), step_ns, rest_ns, f"rank {rank} keeps up again"))
        return findings


def _is_slow(step_ns: int | None, others_ns: int | None) -> bool:
    if step_ns is None or others_ns is None:
        return False
    return step_ns > _SLOW_RATIO * others_ns and step_ns - others_ns > _LEAST_NS


def _medians_of_others(times_ns: dict[int, int]) -> dict[int, int | None]:
    """For each rank the median of the others' times; None for a rank that is alone. One sort serves all ranks."""
    ordered = sorted(times_ns.values())
    count = len(ordered) - 1
    medians: dict[int, int | None] = {}
    for rank, value in times_ns.items():
        if count == 0:
            medians[rank] = None
            continue
        own = bisect_left(ordered, value)
        low, high = (ordered[place + (place >= own)] for place in ((count - 1) // 2, count // 2))
        medians[rank] = (low + high) // 2
    return medians


def _ranks(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
