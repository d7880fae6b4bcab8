"""The records of the write-ahead journal of tuning, and what they tell: what was changed, and how far that got. Pure.

One record a line, each with its checksum and on disk before what it announces is done. A record that a crash tore can
only be the last one, and nothing was done on its behalf: it is dropped. Any other damage is an error, because a guess
could overwrite what an administrator set since.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from clockgated.errors import ClockgateError
from clockgated.tuning.codec import CodecError, from_json, to_json
from clockgated.tuning.model import Change, LinkId

_NAME = "journal"


class JournalError(ClockgateError):
    """The journal cannot be read or written. The message names file, line and the next step."""


class Mark(StrEnum):
    """What a record says."""

    OPEN = "open"
    """An apply begins."""
    WRITE = "write"
    """`change` is about to be made."""
    LANDED = "landed"
    """The write before this record left `value` in the knob, which is not what was wanted."""
    WRITTEN = "written"
    """Everything is as wanted; what may cut the node off waits for proof that it did not."""
    COMMIT = "commit"
    """Everything stays as it is."""
    UNDO = "undo"
    """Everything is about to be given back, in reverse order. Nothing else is written on behalf of this apply."""
    UNDO_ALL = "undo_all"
    """The same for every apply of the file that is not over, the newest first."""
    END = "end"
    """Everything is given back, or left to whoever changed it since."""
    REASSERT = "reassert"
    """The change of `step` drifted and is about to be made again."""


@dataclass(frozen=True)
class LinkStamps:
    """How a link stamped packets before an apply: numbers of linux/net_tstamp.h."""

    link: LinkId
    tx_type: int
    rx_filter: int


@dataclass(frozen=True)
class Record:
    """One line. `change` belongs to WRITE, `value` to LANDED and REASSERT (what was found), both with `step`; `detail`
    is the plan's hash in OPEN, elsewhere a reason; `stamps` belong to OPEN.

    `apply_id` is larger for a later apply and never used again within a boot. `boot_id` and `at_boot_ns`
    (CLOCK_BOOTTIME) say when; interface and network namespace are in the knob of the change.
    """

    mark: Mark
    apply_id: int
    boot_id: str
    at_boot_ns: int
    step: int | None = None
    change: Change | None = None
    value: str | None = None
    detail: str = ""
    stamps: tuple[LinkStamps, ...] = ()


@dataclass(frozen=True)
class Step:
    """One change that was, or may have been, made. `landed` is what the kernel made of it when it was something else.

    `is_in_flight`: no later record of this apply says that the write was over.
    """

    index: int
    change: Change
    landed: str | None = None
    is_in_flight: bool = False


class Stage(StrEnum):
    """How far an apply got, as the journal tells."""

    OPEN = "open"
    COMMITTED = "committed"
    UNDOING = "undoing"
    ENDED = "ended"


@dataclass(frozen=True)
class Transaction:
    """One apply as the journal tells it. `detail` says why it was undone, `reasserts` what was set again since."""

    apply_id: int
    boot_id: str
    stage: Stage
    plan_hash: str
    steps: tuple[Step, ...] = ()
    detail: str = ""
    stamps: tuple[LinkStamps, ...] = ()
    reasserts: tuple[Record, ...] = ()


@dataclass(frozen=True)
class JournalContent:
    """Every record, the length in bytes of the intact part, and whether a torn record follows it."""

    records: tuple[Record, ...] = ()
    intact_bytes: int = 0
    is_torn: bool = False


def encode(record: Record) -> bytes:
    """One line with checksum and end."""
    data = to_json(record)
    return b"%08x %s\n" % (zlib.crc32(data), data)


def parse(data: bytes, name: str = _NAME) -> JournalContent:
    """Every record in `data`. Raises JournalError for damage that is not a torn last line; never another error."""
    records: list[Record] = []
    intact = 0
    lines = data.splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        record = _parse_line(line)
        if isinstance(record, Record):
            records.append(record)
            intact += len(line)
        elif number == len(lines):
            return JournalContent(tuple(records), intact, is_torn=True)
        else:
            raise JournalError(
                f"{name}: line {number}: {record}; compare the settings by hand with the file, then remove it"
            )
    return JournalContent(tuple(records), intact)


def transactions(records: Sequence[Record], name: str = _NAME) -> tuple[Transaction, ...]:
    """The applies that `records` tell of, the oldest first. Raises JournalError when they contradict each other."""
    found: dict[int, Transaction] = {}
    for record in records:
        if record.mark is Mark.UNDO_ALL:
            found = {key: _undoing(one, record) for key, one in found.items()}
            continue
        before = found.get(record.apply_id)
        if (record.mark is Mark.OPEN) is not (before is None):
            raise JournalError(
                f"{name}: {record.mark} of apply {record.apply_id} out of order; remove the file by hand"
            )
        found[record.apply_id] = _advanced(before, record)
    return tuple(found.values())


def _advanced(before: Transaction | None, record: Record) -> Transaction:
    if before is None:
        return Transaction(record.apply_id, record.boot_id, Stage.OPEN, plan_hash=record.detail, stamps=record.stamps)
    if record.mark is Mark.LANDED and before.steps:
        return replace(before, steps=(*before.steps[:-1], replace(before.steps[-1], landed=record.value)))
    if record.mark is Mark.UNDO:
        return _undoing(before, record)
    if record.mark is Mark.END:
        return replace(before, stage=Stage.ENDED)
    settled = tuple(replace(step, is_in_flight=False) for step in before.steps)
    if record.mark is Mark.WRITE and record.change is not None:
        return replace(before, steps=(*settled, Step(len(settled), record.change, is_in_flight=True)))
    if record.mark is Mark.COMMIT:
        return replace(before, stage=Stage.COMMITTED, steps=settled)
    if record.mark is Mark.REASSERT:
        return replace(before, reasserts=(*before.reasserts, record))
    return replace(before, steps=settled) if record.mark is Mark.WRITTEN else before


def _undoing(before: Transaction, record: Record) -> Transaction:
    # A write in flight stays so: it is what the undoing has to know.
    return before if before.stage is Stage.ENDED else replace(before, stage=Stage.UNDOING, detail=record.detail)


def _parse_line(line: bytes) -> Record | str:
    checksum, blank, data = line.removesuffix(b"\n").partition(b" ")
    if not line.endswith(b"\n") or not blank:
        return "not a whole record"
    if checksum != b"%08x" % zlib.crc32(data):
        return "its checksum does not fit"
    try:
        return from_json(Record, data)
    except CodecError as error:
        return str(error)
