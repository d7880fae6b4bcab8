"""Values of tuning <-> messages of clockgate.v1.Tuning. Turning a value into a message never fails."""

from enum import Enum
from typing import Any

from clockgate.v1 import tuning_pb2

from clockgated.tuning.model import (
    Area,
    BufferBound,
    Change,
    Counter,
    Finding,
    Input,
    Knob,
    LinkId,
    Owner,
    OwnerKind,
    Plan,
    Refusal,
    RefusalCode,
    Risk,
    Why,
)

_UINT64_MAX = (1 << 64) - 1


def plan_message(plan: Plan) -> tuning_pb2.TuningPlan:
    """The message for a plan."""
    return tuning_pb2.TuningPlan(
        plan_hash=plan.plan_hash,
        profile=_text(plan.profile),
        profile_why=_text(plan.profile_why),
        boot_id=_text(plan.boot_id),
        netns_inode=plan.netns,
        as_of_boot_ns=plan.as_of_boot_ns,
        changes=map(_change_message, plan.changes),
        findings=map(_finding_message, plan.findings),
        refusals=map(_refusal_message, plan.refusals),
        bounds=map(_bound_message, plan.bounds),
    )


def knob_message(knob: Knob) -> tuning_pb2.Knob:
    """The message for a knob."""
    message = tuning_pb2.Knob(netns_inode=knob.netns, area=_area_number(knob.area), key=_text(knob.key))
    if knob.link is not None:
        message.link.CopyFrom(_link_message(knob.link))
    return message


def owner_message(owner: Owner | None) -> tuning_pb2.TuningOwner | None:
    """The message for an owner; None for none."""
    if owner is None:
        return None
    kind = _number(tuning_pb2.TuningOwnerKind, "TUNING_OWNER_KIND_", owner.kind)
    return tuning_pb2.TuningOwner(kind=kind, place=_text(owner.place), value=_optional(owner.value))


def counter_message(counter: Counter) -> tuning_pb2.TuningCounter:
    """The message for a counter; one that a driver made negative counts as none."""
    return tuning_pb2.TuningCounter(name=_text(counter.name), value=min(max(0, counter.value), _UINT64_MAX))


def _change_message(change: Change) -> tuning_pb2.TuningChange:
    return tuning_pb2.TuningChange(
        knob=knob_message(change.knob),
        found=_text(change.found),
        wanted=_text(change.wanted),
        why=_why_message(change.why),
        risk=_number(tuning_pb2.TuningRisk, "TUNING_RISK_", change.risk),
        resets_link=change.resets_link,
        needs_confirm=change.needs_confirm,
        new_connections_only=change.new_connections_only,
        owner=owner_message(change.owner),
        evidence=map(counter_message, change.evidence),
    )


def _finding_message(finding: Finding) -> tuning_pb2.TuningFinding:
    return tuning_pb2.TuningFinding(
        code=finding.code,
        subject=_text(finding.subject),
        why=_why_message(finding.why),
        needs_attention=finding.needs_attention,
        next_step=_text(finding.next_step),
        evidence=map(counter_message, finding.evidence),
    )


def _refusal_message(refusal: Refusal) -> tuning_pb2.TuningRefusal:
    return tuning_pb2.TuningRefusal(
        code=_number(tuning_pb2.RefusalCode, "REFUSAL_CODE_", refusal.code),
        subject=_text(refusal.subject),
        why=_why_message(refusal.why),
        next_step=_text(refusal.next_step),
        knob=None if refusal.knob is None else knob_message(refusal.knob),
        found=_optional(refusal.found),
        wanted=_optional(refusal.wanted),
        owner=owner_message(refusal.owner),
    )


def _bound_message(bound: BufferBound) -> tuning_pb2.TuningBufferBound:
    return tuning_pb2.TuningBufferBound(
        link=_text(bound.link),
        link_bps=bound.link_bps,
        rtt_us=bound.rtt_us,
        window_bytes=bound.window_bytes,
        flow_bps=bound.flow_bps,
        gain=bound.gain,
        sentence=_text(bound.sentence),
    )


def _why_message(why: Why) -> tuning_pb2.TuningWhy:
    return tuning_pb2.TuningWhy(
        sentence=_text(why.sentence), formula=_text(why.formula), inputs=map(_input_message, why.inputs)
    )


def _input_message(one: Input) -> tuning_pb2.TuningInput:
    is_word = isinstance(one.value, str)
    return tuning_pb2.TuningInput(
        name=_text(one.name),
        value=_text(f"{one.value:.3f}" if isinstance(one.value, float) else str(one.value)),
        number=None if is_word else float(one.value),
        unit=_text(one.unit),
    )


def _link_message(link: LinkId) -> tuning_pb2.TuningLink:
    return tuning_pb2.TuningLink(
        name=_text(link.name),
        ifindex=link.ifindex,
        permanent_mac=_optional(link.permanent_mac),
        driver=_optional(link.driver),
    )


def _area_number(area: Area) -> Any:
    return _number(tuning_pb2.TuningArea, "TUNING_AREA_", area)


def _number(enum: Any, prefix: str, member: Enum) -> Any:
    return enum.Value(prefix + member.name)


def _optional(text: str | None) -> str | None:
    return None if text is None else _text(text)


def _text(text: str) -> str:
    """`text` without lone surrogates, which odd bytes in names become and protobuf refuses."""
    return text.encode(errors="replace").decode()


ENUMERATIONS: tuple[tuple[type[Enum], Any, str], ...] = (
    (Area, tuning_pb2.TuningArea, "TUNING_AREA_"),
    (Risk, tuning_pb2.TuningRisk, "TUNING_RISK_"),
    (OwnerKind, tuning_pb2.TuningOwnerKind, "TUNING_OWNER_KIND_"),
    (RefusalCode, tuning_pb2.RefusalCode, "REFUSAL_CODE_"),
)
"""Own enumerations beside those of the API, which have to have the same names."""
