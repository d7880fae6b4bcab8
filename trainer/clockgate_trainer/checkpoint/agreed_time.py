"""One time for a checkpoint, equal on all ranks, from the rows of the vote that its save began with. Pure.

Rank 0's clock read w when its row left, and it is within b of its reference. So by that reference the save was at
w + b at the latest: this edge is the agreed time. Another 2 x b later the reference itself is past it; a checkpoint
that gets its name only then is found by nobody at an earlier time than its own (a commit wait).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from clockgate_trainer.checkpoint.manifest import AgreedTime, Disruption
from clockgate_trainer.gate.gate import reason_names
from clockgate_trainer.gate.model import ABSENT, Decision, Row, SaveVerdict

# A save is not held up longer than twice this; a wider bound is told, not waited out.
LARGEST_BOUND_WAITED_OUT_NS = 50_000_000


@dataclass(frozen=True)
class Timing:
    """The time of a checkpoint, or the sentence that says why it has none.

    `wall_ns` is rank 0's raw CLOCK_REALTIME. The checkpoint may get its name `wait_ns` after the vote.
    """

    agreed: AgreedTime | None
    absent_because: str | None
    wall_ns: int
    wait_ns: int


def agree_on_time(step: Decision, save: Decision) -> Timing:
    """The time of the save that the vote `save` began, on the ground of the decision `step`.

    The UTC bound of rank 0 comes first; its relative bound counts when all ranks name one reference. None when any
    rank voted something laxer than SAVE, or without a bound.
    """
    first = save.rows[0]
    absence = _unfit(step, save)
    basis, bound_ns = _bound(save.rows)
    if absence is None and bound_ns is None:
        absence = "rank 0 knows no bound of its clock that holds for all ranks"
    if absence is not None or bound_ns is None:
        return Timing(None, f"{absence}; unverified_wall_ns is rank 0's own clock", first.sent_wall_ns, 0)
    waited_out = bound_ns <= LARGEST_BOUND_WAITED_OUT_NS
    agreed = AgreedTime(first.sent_wall_ns + bound_ns, bound_ns, basis, waited_out)
    return Timing(agreed, None, first.sent_wall_ns, 2 * bound_ns if waited_out else 0)


def disruptions(before: Mapping[int, int], rows: tuple[Row, ...]) -> tuple[Disruption, ...]:
    """Every rank whose epoch is another one than in `before` (epochs by rank); unknown epochs tell nothing."""
    return tuple(
        Disruption(rank, before[rank], row.epoch)
        for rank, row in enumerate(rows)
        if rank in before and row.epoch not in (ABSENT, before[rank])
    )


def _unfit(step: Decision, save: Decision) -> str | None:
    """Why no time may be agreed on, whatever the bounds are."""
    verdict = max(step.save_verdict, save.save_verdict)
    if verdict is SaveVerdict.SAVE:
        return None
    reasons = step.untimed_reasons | save.untimed_reasons or step.reasons | save.reasons
    causes = ", ".join(reason_names(reasons)) or "no rank was told how good its clock is"
    return f"the ranks voted {verdict.name} ({causes})"


def _bound(rows: tuple[Row, ...]) -> tuple[str, int | None]:
    """Basis and width of rank 0's bound."""
    first = rows[0]
    if first.utc_bound_ns != ABSENT:
        return "utc", first.utc_bound_ns
    one_reference = first.reference_hash != ABSENT and all(row.reference_hash == first.reference_hash for row in rows)
    if first.relative_bound_ns != ABSENT and one_reference:
        return "relative", first.relative_bound_ns
    return "none", None
