"""`clockgatectl tune plan` as a person and as a script want it, and how a failed call of Tuning is told."""

from collections.abc import Iterable, MutableMapping, MutableSequence
from typing import Any

import grpc
from clockgate.v1 import tuning_pb2, tuning_pb2_grpc

from clockgated.ctl.address import details, status_code
from clockgated.ctl.status import printable
from clockgated.errors import ClockgateError

PLAN_DEADLINE_S = 10.0
EXIT_CLEAN, EXIT_DRIFT, EXIT_UNSUPPORTED, EXIT_CONFLICT, EXIT_ERROR = 0, 1, 4, 5, 6
# The gravest last: what cannot be had at all is less than what differs.
_BY_GRAVITY = (EXIT_CLEAN, EXIT_UNSUPPORTED, EXIT_DRIFT, EXIT_CONFLICT, EXIT_ERROR)
_REFUSAL_EXITS = {
    tuning_pb2.REFUSAL_CODE_CONFLICT: EXIT_CONFLICT,
    tuning_pb2.REFUSAL_CODE_ERROR: EXIT_ERROR,
}
_REFUSED = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.ABORTED,
)
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


class TuneRefusedError(ClockgateError):
    """The daemon does not take what was asked: no such profile, a mistake in its file, or not now."""


def read_plan(channel: grpc.Channel, profile: str | None, rtt_ms: float | None) -> tuning_pb2.TuningPlan:
    """The plan now. Raises TuneRefusedError, or grpc.RpcError when the daemon cannot be reached."""
    request = tuning_pb2.PlanRequest(profile=None if profile is None else sendable(profile), rtt_ms=rtt_ms)
    try:
        return tuning_pb2_grpc.TuningStub(channel).Plan(request, timeout=PLAN_DEADLINE_S).plan
    except grpc.RpcError as error:
        if status_code(error) in _REFUSED:
            raise TuneRefusedError(details(error)) from None
        if status_code(error) == grpc.StatusCode.UNIMPLEMENTED:
            raise TuneRefusedError("this clockgated knows no tuning; update it") from None
        raise


def sendable(word: str) -> str:
    """A word of the command line without bytes that are no text, which protobuf refuses to send."""
    return word.encode(errors="replace").decode()


def plan_exit(plan: tuning_pb2.TuningPlan) -> int:
    """0 nothing to do, 1 changes are wanted, 4 something cannot be had here, 5 somebody else owns it, 6 error."""
    codes = [_REFUSAL_EXITS.get(refusal.code, EXIT_UNSUPPORTED) for refusal in plan.refusals]
    codes += [EXIT_DRIFT] if plan.changes else []
    return gravest(codes)


def gravest(codes: Iterable[int]) -> int:
    """The exit code that stands for all of `codes`; 0 for none."""
    return max(codes, key=_BY_GRAVITY.index, default=EXIT_CLEAN)


def as_json(plan: tuning_pb2.TuningPlan) -> dict[str, Any]:
    """The plan under the names of the API, null for what is absent, and the exit code."""
    return {**plain(plan), "exit_code": plan_exit(plan)}


def plain(message: Any) -> dict[str, Any]:
    """A message with all of its fields under their names: enumerations by name, None for what is absent."""
    shown: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if isinstance(value, MutableSequence):
            shown[field.name] = [_plain_value(field, one) for one in value]
        elif isinstance(value, MutableMapping):
            shown[field.name] = dict(sorted(value.items()))
        else:
            is_absent = field.has_presence and not message.HasField(field.name)
            shown[field.name] = None if is_absent else _plain_value(field, value)
    return shown


def render(plan: tuning_pb2.TuningPlan, *, in_colour: bool = False) -> str:
    """The plan for a person: what would be set and why, what is refused, what to look at, what buffers can bring."""
    lines = [
        f"profile {printable(plan.profile)} ({printable(plan.profile_why)})",
        *_section("would set", map(_change, plan.changes), in_colour),
        *_section("not done", map(_refusal, plan.refusals), in_colour),
        *_section("to look at", map(_finding, (one for one in plan.findings if one.needs_attention)), in_colour),
        *_section("to know", map(_finding, (one for one in plan.findings if not one.needs_attention)), in_colour),
        *_section("buffers", ([f"{_text(one.link)}: {_text(one.sentence)}"] for one in plan.bounds), in_colour),
        "",
    ]
    if plan.changes:
        lines.append(f"to do it, as root: clockgatectl tune apply {plan.plan_hash}")
    else:
        lines.append("nothing to do")
    return "\n".join(lines)


def subject(knob: tuning_pb2.Knob) -> str:
    """How people name a knob: "net.ipv4.tcp_rmem", "eth0 channels.combined"."""
    if not knob.HasField("link") or knob.area == tuning_pb2.TUNING_AREA_SYSFS:
        return _text(knob.key)
    area = enum_name(tuning_pb2.TuningArea, knob.area, "TUNING_AREA_").lower()
    return f"{_text(knob.link.name)} {area if knob.key == area else f'{area}.{_text(knob.key)}'}"


def _plain_value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value


def _section(title: str, entries: Iterable[list[str]], in_colour: bool) -> list[str]:
    listed = list(entries)
    if not listed:
        return []
    heading = f"{_BOLD}{title}{_PLAIN}" if in_colour else title
    return ["", f"{heading}:", *(f"  {line}" for entry in listed for line in entry)]


def _change(change: tuning_pb2.TuningChange) -> list[str]:
    notes = [enum_name(tuning_pb2.TuningRisk, change.risk, "TUNING_RISK_").lower()]
    notes += ["resets the link"] if change.resets_link else []
    notes += ["undone unless confirmed"] if change.needs_confirm else []
    notes += ["new connections only"] if change.new_connections_only else []
    lines = [f"{subject(change.knob)}: {_text(change.found)} -> {_text(change.wanted)}   [{', '.join(notes)}]"]
    lines += _why(change.why)
    if change.HasField("owner"):
        lines.append(f"    also set by {_owner(change.owner)}")
    if change.evidence:
        counted = ", ".join(f"{_text(one.name)} {one.value}" for one in change.evidence)
        lines.append(f"    counters: {counted}")
    return lines


def _refusal(refusal: tuning_pb2.TuningRefusal) -> list[str]:
    code = enum_name(tuning_pb2.RefusalCode, refusal.code, "REFUSAL_CODE_").lower()
    found = f" {_text(refusal.found)}" if refusal.HasField("found") else ""
    wanted = f" -> {_text(refusal.wanted)}" if refusal.HasField("wanted") else ""
    lines = [f"{_text(refusal.subject)}:{found}{wanted}   [{code}]", *_why(refusal.why)]
    if refusal.HasField("owner"):
        lines.append(f"    set by {_owner(refusal.owner)}")
    return [*lines, f"    next: {_text(refusal.next_step)}"]


def _finding(finding: tuning_pb2.TuningFinding) -> list[str]:
    lines = [f"{finding.code} {_text(finding.subject)}", *_why(finding.why)]
    return [*lines, f"    next: {_text(finding.next_step)}"] if finding.next_step else lines


def _why(why: tuning_pb2.TuningWhy) -> list[str]:
    inputs = ", ".join(f"{_text(one.name)} {_text(one.value)} {_text(one.unit)}".rstrip() for one in why.inputs)
    basis = "; ".join(part for part in (_text(why.formula), inputs) if part)
    return [f"    {_text(why.sentence)}"] + ([f"    by: {basis}"] if basis else [])


def _owner(owner: tuning_pb2.TuningOwner) -> str:
    value = f" (to {_text(owner.value)})" if owner.HasField("value") else ""
    return f"{_text(owner.place)}{value}"


def enum_name(enum: Any, number: int, prefix: str) -> str:
    """Name of a value without the enum's prefix; its number when a newer daemon sent one that is not known here."""
    try:
        name: str = enum.Name(number)
    except ValueError:
        return str(number)
    return name.removeprefix(prefix)


def _text(text: str) -> str:
    return printable(text)
