"""The values of the gate: a rank's row in the vote, and the decision that all ranks derive from all rows.

Pure. Numbers of the verdict enums are those of clockgate.v1 (a test compares them).
"""

from dataclasses import astuple, dataclass, replace
from enum import IntEnum, IntFlag

PROTOCOL_VERSION = 2
ABSENT = -1
ROW_LENGTH = 16


class StepVerdict(IntEnum):
    """May gradients be exchanged at this step? The cluster acts on the maximum."""

    PROCEED = 1
    WARN = 2
    HOLD = 3
    STOP = 4


class SaveVerdict(IntEnum):
    """May a checkpoint be saved at this step? The cluster acts on the maximum."""

    SAVE = 1
    SAVE_UNTIMED = 2
    SKIP_SAVE = 3


class Kind(IntEnum):
    """What a vote is about. All ranks of one vote must name the same kind and step."""

    STEP = 1
    HOLD_POLL = 2
    SAVE = 3
    COMMIT = 4
    EVAL = 5
    EXIT = 6


class Flags(IntFlag):
    """What a rank brings to everybody's notice in its row; the cluster acts on the union."""

    NONE = 0
    BUDGET_SPENT = 1
    SAVE_AND_GO_ON = 2
    SAVE_AND_EXIT = 4
    OUT_OF_MEMORY = 8
    SAVE_FAILED = 16
    SAVE_READY = 32


@dataclass(frozen=True)
class Row:
    """One rank's row, 16 int64 on the wire in this order; ABSENT (-1) marks what is unknown or unused.

    `sent_wall_ns` is CLOCK_REALTIME just before the row leaves; durations are monotonic; `reasons` has bit c
    set for ReasonCode c; `batch` is micro-batch size << 32 | accumulation steps. `step_duration_ns` counts what this
    rank itself did in the step before, without its waits for others. `content_digest` is of adapter or files in SAVE
    and COMMIT; in STEP and HOLD_POLL it is the Accusation that this rank makes.
    """

    version: int
    kind: int
    step: int
    step_verdict: int
    save_verdict: int
    reasons: int
    relative_bound_ns: int
    utc_bound_ns: int
    reference_hash: int
    epoch: int
    sent_wall_ns: int
    step_duration_ns: int
    flags: int
    batch: int
    cursor_digest: int
    content_digest: int

    def to_wire(self) -> tuple[int, ...]:
        """The 16 int64 of this row."""
        return astuple(self)

    @classmethod
    def from_wire(cls, values: tuple[int, ...]) -> "Row":
        """Read a row; raises ValueError unless there are exactly 16 values."""
        if len(values) != ROW_LENGTH:
            raise ValueError(f"a vote row has {len(values)} values, wanted {ROW_LENGTH}")
        return cls(*values)


@dataclass(frozen=True)
class Accusation:
    """What a rank found in the vote before: the row of `rank` left after it had arrived here, by more than both bounds.

    `over_hold` says that the two clocks differ by more than the hold limit. `by_most` says that the accuser can say so
    of more than half of the other ranks, and there are several: then its own clock is the likely culprit.
    """

    rank: int
    over_hold: bool
    by_most: bool

    def to_wire(self) -> int:
        """As one number from 0."""
        return self.rank << 2 | self.by_most << 1 | self.over_hold

    @classmethod
    def from_wire(cls, value: int) -> "Accusation | None":
        """Read a row's number; None for ABSENT. Raises ValueError for what no rank sends."""
        if value == ABSENT:
            return None
        if value < 0:
            raise ValueError(f"{value} accuses nobody, wanted {ABSENT} or 0 and more")
        return cls(value >> 2, bool(value & 1), bool(value & 2))


@dataclass(frozen=True)
class Limits:
    """Widths between two nodes, ns: above `warn_ns` warn, above `hold_ns` hold."""

    warn_ns: int
    hold_ns: int


@dataclass(frozen=True)
class Decision:
    """What every rank concludes from the same rows, equal on all ranks.

    `cluster_bound_ns` is the largest disagreement possible between two ranks' clocks; None when not knowable, with
    `bound_basis` "relative", "utc" or "none". `blamed_ranks` cast the strictest step verdict (none on PROCEED).
    `reasons` is a bit set of ReasonCode. `flags` is the union of all rows. `untimed_reasons`, a bit set too, says why a
    checkpoint gets no agreed time; 0 under SAVE. `disproved_ranks` have clocks that the vote proved to be outside their
    bounds; where that is one of two and nobody can tell which, both are there.
    """

    kind: Kind
    step: int
    step_verdict: StepVerdict
    save_verdict: SaveVerdict
    reasons: int
    cluster_bound_ns: int | None
    bound_basis: str
    blamed_ranks: tuple[int, ...]
    flags: Flags
    rows: tuple[Row, ...]
    untimed_reasons: int = 0
    disproved_ranks: tuple[int, ...] = ()

    def for_last_save(self) -> "Decision":
        """The same for a save that no clock may postpone: weights do not depend on clocks."""
        return replace(self, save_verdict=min(self.save_verdict, SaveVerdict.SAVE_UNTIMED))
