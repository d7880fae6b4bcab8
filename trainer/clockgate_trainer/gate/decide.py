"""All rows of one vote to one decision. Pure: every rank computes the same from the same rows.

The decision is never laxer than any rank's own row.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from heapq import nsmallest
from operator import or_

from clockgate.v1 import clock_pb2

from clockgate_trainer.errors import DesyncError
from clockgate_trainer.gate.model import (
    ABSENT,
    Accusation,
    Decision,
    Flags,
    Kind,
    Limits,
    Row,
    SaveVerdict,
    StepVerdict,
)

_MEANINGS = {
    "kind": frozenset(map(int, Kind)),
    "step_verdict": frozenset(map(int, StepVerdict)),
    "save_verdict": frozenset(map(int, SaveVerdict)),
}


@dataclass(frozen=True)
class _Finding:
    """One ground for a step verdict: the reason bits that it adds and the ranks that it rests on."""

    verdict: StepVerdict
    reasons: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class _Pair:
    """The widest pair of clocks: the sum of their bounds, None when they do not compare, and where it is from."""

    bound_ns: int | None
    basis: str
    ranks: tuple[int, ...]


_NO_PAIR = _Pair(None, "none", ())
# Votes whose rows carry accusations; those of the other kinds carry digests in their place.
_AUDITED = (Kind.STEP, Kind.HOLD_POLL)


def decide(rows: tuple[Row, ...], limits: Limits) -> Decision:
    """Decide from the rows of all ranks, in the order of ranks; there is at least one.

    Verdicts are maxima over ranks, reasons and flags are unions. The pairwise bound raises the step verdict to WARN or
    HOLD, and ranks that name different references without a UTC bound in common raise it to HOLD. A clock that the vote
    proved to be outside its bound gives WARN, and HOLD when it is off by more than the hold limit. Rank 0's spent hold
    budget, and a signal on any rank, give STOP. Where no bound compares all clocks, or one is disproved, there is no
    agreed time: SAVE_UNTIMED. Raises DesyncError with ranks and values named when ranks disagree about protocol
    version, kind or step, or when a row holds a number without a meaning.
    """
    _demand_one_point(rows)
    _demand_meaning(rows)
    witnesses = _witnesses(rows)
    pair = _widest_pair(witnesses)
    lies = _lies(rows)
    clock = [
        *_own_findings(rows),
        *_pair_findings(pair, witnesses, limits),
        *_reference_findings(pair, witnesses),
        *lies,
    ]
    findings = [*clock, *_flag_findings(rows, clock)]
    strictest = max(finding.verdict for finding in findings)
    published = pair if len(witnesses) == len(rows) else _NO_PAIR
    untimed = _untimed_reasons(rows, published, all_told=len(witnesses) == len(rows), lies=lies)
    own_save = SaveVerdict(max(row.save_verdict for row in rows))
    return Decision(
        kind=Kind(rows[0].kind),
        step=rows[0].step,
        step_verdict=strictest,
        save_verdict=max(own_save, SaveVerdict.SAVE_UNTIMED) if untimed else own_save,
        reasons=reduce(or_, (finding.reasons for finding in findings)),
        cluster_bound_ns=published.bound_ns,
        bound_basis=published.basis,
        blamed_ranks=_blamed(findings, strictest),
        flags=Flags(reduce(or_, (row.flags for row in rows))),
        rows=rows,
        untimed_reasons=untimed,
        disproved_ranks=tuple(sorted({rank for lie in lies for rank in lie.ranks})),
    )


def _demand_one_point(rows: Sequence[Row]) -> None:
    for name in ("version", "kind", "step"):
        values = [getattr(row, name) for row in rows]
        usual, votes = Counter(values).most_common(1)[0]
        odd = tuple(rank for rank, value in enumerate(values) if value != usual)
        if not odd:
            continue
        if 2 * votes <= len(values):
            odd = tuple(range(len(values)))
        seen = ", ".join(f"rank {rank}: {_label(name, values[rank])}" for rank in odd)
        wanted = f"the others: {_label(name, usual)}" if 2 * votes > len(values) else "no majority"
        raise DesyncError(
            f"ranks voted with different {name}s ({seen}; {wanted}); start all ranks with the same program, flags "
            "and checkpoint",
            ranks=odd,
        )


def _demand_meaning(rows: Sequence[Row]) -> None:
    """What rows may hold. Ten thousand rows of healthy ranks are alike: each kind of row is looked at once."""
    looked_at = set()
    for rank, row in enumerate(rows):
        alike = (row.kind, row.step_verdict, row.save_verdict, row.reasons, row.flags)
        if alike not in looked_at:
            looked_at.add(alike)
            _demand_known_numbers(rank, row)
        accused = None if row.content_digest == ABSENT else _accusation(row, rank)
        if accused is not None and (accused.rank >= len(rows) or accused.rank == rank):
            raise DesyncError(
                f"rank {rank} accuses rank {accused.rank}, wanted another of {len(rows)} ranks; run the same version "
                "of clockgate-train on all ranks",
                ranks=(rank,),
            )


def _demand_known_numbers(rank: int, row: Row) -> None:
    for name, meanings in _MEANINGS.items():
        value = getattr(row, name)
        if value not in meanings:
            raise DesyncError(
                f"rank {rank} voted {name} {value}, wanted one of {sorted(meanings)}; run the same version of "
                "clockgate-train on all ranks",
                ranks=(rank,),
            )
    for name in ("reasons", "flags"):
        value = getattr(row, name)
        if value < 0:
            raise DesyncError(f"rank {rank} voted {name} {value}, wanted a set of bits, 0 or more", ranks=(rank,))


def _accusation(row: Row, rank: int) -> Accusation | None:
    if row.kind not in _AUDITED:
        return None
    try:
        return Accusation.from_wire(row.content_digest)
    except ValueError as error:
        raise DesyncError(f"rank {rank} voted content_digest {error}", ranks=(rank,)) from error


def _label(name: str, value: int) -> str:
    return Kind(value).name if name == "kind" and value in _MEANINGS["kind"] else str(value)


def _witnesses(rows: Sequence[Row]) -> dict[int, Row]:
    """The rows that say how good their clock is, by rank."""
    return {rank: row for rank, row in enumerate(rows) if row.relative_bound_ns != ABSENT or row.utc_bound_ns != ABSENT}


def _widest_pair(witnesses: dict[int, Row]) -> _Pair:
    """Two clocks can disagree by the sum of their bounds, so the two largest bounds make the cluster's bound.

    Relative bounds compare only against the same reference; UTC bounds always. A single clock has no pair: its own
    bound stands.
    """
    relative = {rank: row.relative_bound_ns for rank, row in witnesses.items()}
    utc = {rank: row.utc_bound_ns for rank, row in witnesses.items()}
    references = {row.reference_hash for row in witnesses.values()}
    one_reference = len(witnesses) == 1 or (len(references) == 1 and ABSENT not in references)
    if witnesses and one_reference and ABSENT not in relative.values():
        return _sum_of_two(relative, "relative")
    if witnesses and ABSENT not in utc.values():
        return _sum_of_two(utc, "utc")
    return _NO_PAIR


def _sum_of_two(bounds_ns: dict[int, int], basis: str) -> _Pair:
    widest = nsmallest(2, bounds_ns, key=lambda rank: (-bounds_ns[rank], rank))
    return _Pair(sum(bounds_ns[rank] for rank in widest), basis, tuple(widest))


def _own_findings(rows: Sequence[Row]) -> list[_Finding]:
    """What ranks say themselves; those with nothing to say share one finding."""
    told = [
        _Finding(StepVerdict(row.step_verdict), row.reasons, (rank,))
        for rank, row in enumerate(rows)
        if row.reasons or row.step_verdict != StepVerdict.PROCEED
    ]
    return [_Finding(StepVerdict.PROCEED, 0, ()), *told]


def _pair_findings(pair: _Pair, witnesses: dict[int, Row], limits: Limits) -> list[_Finding]:
    """What the limits say. Where not all clocks compare, those with UTC bounds still do."""
    if pair.bound_ns is None:
        utc = {rank: row.utc_bound_ns for rank, row in witnesses.items() if row.utc_bound_ns != ABSENT}
        pair = _sum_of_two(utc, "utc") if len(utc) > 1 else _NO_PAIR
    if pair.bound_ns is None:
        return []
    if pair.bound_ns > limits.hold_ns:
        return [_Finding(StepVerdict.HOLD, 1 << clock_pb2.REASON_CODE_HOLD_LIMIT, pair.ranks)]
    if pair.bound_ns > limits.warn_ns:
        return [_Finding(StepVerdict.WARN, 1 << clock_pb2.REASON_CODE_WARN_LIMIT, pair.ranks)]
    return []


def _reference_findings(pair: _Pair, witnesses: dict[int, Row]) -> list[_Finding]:
    """HOLD when two named references differ and nothing compares them.

    A reference without a name is no proof of a difference (two ranks of one node may both lack it): the reason is
    told, the verdict stays with the rows.
    """
    if len(witnesses) < 2 or pair.bound_ns is not None:
        return []
    named = {row.reference_hash for row in witnesses.values()} - {ABSENT}
    verdict = StepVerdict.HOLD if len(named) > 1 else StepVerdict.PROCEED
    return [_Finding(verdict, 1 << clock_pb2.REASON_CODE_REFERENCES_DIFFER, tuple(witnesses))]


def _lies(rows: Sequence[Row]) -> list[_Finding]:
    """Clocks that are outside their bounds, by what ranks saw in the vote before.

    Of one accuser and one accused either may be wrong, so both are named. More than half of the others cannot all be
    wrong about one rank, nor one rank be right about more than half of the others.
    """
    accusations = {rank: _accusation(row, rank) for rank, row in enumerate(rows) if row.content_digest != ABSENT}
    made = {rank: accusation for rank, accusation in accusations.items() if accusation is not None}
    accusers = Counter(accusation.rank for accusation in made.values() if not accusation.by_most)
    findings = []
    for rank, accusation in made.items():
        if accusation.by_most:
            named: tuple[int, ...] = (rank,)
        elif len(rows) > 2 and 2 * accusers[accusation.rank] > len(rows) - 1:
            named = (accusation.rank,)
        else:
            named = (rank, accusation.rank)
        verdict = StepVerdict.HOLD if accusation.over_hold else StepVerdict.WARN
        findings.append(_Finding(verdict, 1 << clock_pb2.REASON_CODE_CAUSALITY_VIOLATED, named))
    return findings


def _untimed_reasons(rows: Sequence[Row], pair: _Pair, *, all_told: bool, lies: Sequence[_Finding]) -> int:
    """Why there is no agreed time, as a bit set; 0 when there is one. A rank that says SAVE needs a bound to say so."""
    own = [row for row in rows if row.save_verdict != SaveVerdict.SAVE]
    reasons = reduce(or_, (row.reasons for row in own), 0) | reduce(or_, (lie.reasons for lie in lies), 0)
    if pair.bound_ns is None and all_told:
        reasons |= 1 << clock_pb2.REASON_CODE_REFERENCES_DIFFER
    elif pair.bound_ns is None and not own:
        reasons |= 1 << clock_pb2.REASON_CODE_NO_USABLE_BOUND
    return reasons


def _flag_findings(rows: Sequence[Row], clock: Sequence[_Finding]) -> list[_Finding]:
    """STOP for a spent hold budget (rank 0's clock alone counts it) and for a signal.

    The ranks of the budget's finding are those that the cluster waited for.
    """
    findings = []
    if rows[0].flags & Flags.BUDGET_SPENT:
        waited_for = _blamed(clock, max(finding.verdict for finding in clock))
        findings.append(_Finding(StepVerdict.STOP, 1 << clock_pb2.REASON_CODE_HOLD_BUDGET_SPENT, waited_for))
    signalled = tuple(rank for rank, row in enumerate(rows) if row.flags & Flags.SAVE_AND_EXIT)
    if signalled:
        findings.append(_Finding(StepVerdict.STOP, 1 << clock_pb2.REASON_CODE_SIGNAL, signalled))
    return findings


def _blamed(findings: Sequence[_Finding], strictest: StepVerdict) -> tuple[int, ...]:
    if strictest is StepVerdict.PROCEED:
        return ()
    return tuple(sorted({rank for finding in findings if finding.verdict == strictest for rank in finding.ranks}))
