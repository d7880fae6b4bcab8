"""Values of the daemon <-> messages of clockgate.v1: the only file that sees both.

Turning a value into a message never fails: what a message cannot carry is left out or replaced.
"""

from clockgate.v1 import admin_pb2, clock_pb2, gate_pb2

from clockgated import drill
from clockgated.clock.model import Reading, Reason, Reference
from clockgated.leases import Lease, LeaseLimits
from clockgated.memory.epochs import Disruption

_INT64_MAX = (1 << 63) - 1


def reading_message(reading: Reading, now_boot_ns: int) -> clock_pb2.Reading:
    """The message for `reading`, sent at `now_boot_ns` (CLOCK_BOOTTIME), which sets its age."""
    message = clock_pb2.Reading(
        state=clock_pb2.ClockState.ValueType(reading.state),
        growth_ppb=reading.growth_ppb,
        epoch=reading.epoch,
        reference=_reference_message(reading.reference),
        as_of_boot_ns=reading.as_of_boot_ns,
        void_after_boot_ns=reading.void_after_boot_ns,
        boot_id=reading.boot_id,
        age_ns=max(0, now_boot_ns - reading.as_of_boot_ns),
        reasons=[_reason_message(reason) for reason in reading.reasons],
        assumptions=[_text(assumption) for assumption in reading.assumptions],
        source_kind=clock_pb2.SourceKind.ValueType(reading.source_kind),
        sequence=reading.sequence,
    )
    # A width of more than 292 years is no knowledge; left out, where a saturated one would be a false promise.
    if reading.relative_bound_ns is not None and reading.relative_bound_ns <= _INT64_MAX:
        message.relative_bound_ns = reading.relative_bound_ns
    if reading.utc_bound_ns is not None and reading.utc_bound_ns <= _INT64_MAX:
        message.utc_bound_ns = reading.utc_bound_ns
    if reading.offset_ns is not None and abs(reading.offset_ns) <= _INT64_MAX:
        message.offset_ns = reading.offset_ns
    if reading.estimate_95_ns is not None and reading.estimate_95_ns <= _INT64_MAX:
        message.estimate_95_ns = reading.estimate_95_ns
    return message


def detail_messages(reading: Reading) -> list[clock_pb2.SourceDetail]:
    """The messages for what the time daemon said about itself."""
    return [clock_pb2.SourceDetail(name=_text(one.name), value=_text(one.value)) for one in reading.details]


def epoch_message(disruption: Disruption) -> clock_pb2.Epoch:
    """The message for one line of the journal."""
    message = clock_pb2.Epoch(
        # A journal that somebody edited may hold any number.
        epoch=max(0, disruption.epoch),
        boot_id=_text(disruption.boot_id),
        began_boot_ns=disruption.at_boot_ns,
        began_wall_ns=disruption.wall_ns,
        cause=_text(disruption.code),
        detail=_text(disruption.detail),
    )
    if disruption.jump_ns is not None:
        message.jump_ns = disruption.jump_ns
    return message


def lease_message(lease: Lease, limits: LeaseLimits) -> gate_pb2.Lease:
    """The message for an open lease."""
    return gate_pb2.Lease(
        lease_id=lease.lease_id,
        job=lease.job,
        rank=lease.rank,
        opened_boot_ns=lease.opened_boot_ns,
        checked_boot_ns=lease.checked_boot_ns,
        ends_boot_ns=lease.checked_boot_ns + limits.idle_ns,
    )


def fault_from(request: admin_pb2.DrillRequest) -> drill.Fault | None:
    """The fault that a Drill request names; None for clear and for a request that names nothing."""
    match request.WhichOneof("fault"):
        case "freeze_source":
            return drill.Freeze()
        case "add_offset":
            return drill.Offset(request.add_offset.offset_ns)
        case "step_clock":
            return drill.Step(request.step_clock.jump_ns)
        case _:
            return None


def _reference_message(reference: Reference) -> clock_pb2.Reference:
    message = clock_pb2.Reference(
        source_name=_text(reference.source_name),
        ref_id=_text(reference.ref_id),
        traceability=clock_pb2.Traceability.ValueType(reference.traceability),
    )
    if reference.identity is not None:
        message.identity = _text(reference.identity)
    if reference.stratum is not None:
        message.stratum = reference.stratum
    return message


def _reason_message(reason: Reason) -> clock_pb2.Reason:
    return clock_pb2.Reason(code=clock_pb2.ReasonCode.ValueType(reason.code), detail=_text(reason.detail))


def _text(text: str) -> str:
    """`text` without lone surrogates, which other programs' odd bytes become and protobuf refuses."""
    return text.encode(errors="replace").decode()
