"""What the plan and the supervised programs mean for a reading, as reasons and assumptions. Pure."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from clockgated.clock.model import Evidence, Reason, ReasonCode, Reference, Silence
from clockgated.manage.mode import PlanCode
from clockgated.manage.planned import Plan
from clockgated.manage.settings import Mode
from clockgated.supervise.base import ChildStatus
from clockgated.supervise.supervisor import SuperviseStatus

_REASON_CODES = {
    PlanCode.NO_NTP_SOURCE: ReasonCode.NO_SELECTED_SOURCE,
    PlanCode.NOTHING_TO_RUN: ReasonCode.NO_SELECTED_SOURCE,
    PlanCode.NO_PTP_PORT: ReasonCode.PORT_NOT_SLAVE,
    PlanCode.TOOL_MISSING: ReasonCode.TIME_DAEMON_MISSING,
    PlanCode.TOOL_TOO_OLD: ReasonCode.TIME_DAEMON_MISSING,
    PlanCode.OPTION_UNKNOWN: ReasonCode.TIME_DAEMON_MISSING,
    PlanCode.OTHER_TIME_DAEMON: ReasonCode.OTHER_TIME_DAEMON,
    PlanCode.NOT_ROOT: ReasonCode.NOT_STEERED,
}
# Mode "auto" promises to manage where it can: why it cannot matters only where the clock that it then observes is bad.
_HINTS_IN_AUTO = frozenset({PlanCode.NOTHING_TO_RUN, PlanCode.TOOL_MISSING, PlanCode.TOOL_TOO_OLD})

NOBODY_STEERS = (
    "nobody steers this clock, for lack of the right to set it (CAP_SYS_TIME); how far it is off is measured"
)


@dataclass(frozen=True)
class Notices:
    """What is put beside each measurement.

    `always` stand on every reading; `hints`, the next steps towards a better clock, on one that is not good.
    """

    always: tuple[Reason, ...] = ()
    hints: tuple[Reason, ...] = ()
    assumptions: tuple[str, ...] = ()


def plan_notices(asked: Mode, plan: Plan, *, has_clock_right: bool) -> Notices:
    """What the plan, made because mode `asked` is configured, is to be told for."""
    if plan.daemons:
        if has_clock_right:
            return Notices()
        not_steered = Reason(ReasonCode.NOT_STEERED, f"{NOBODY_STEERS}; give clockgated CAP_SYS_TIME")
        return Notices((not_steered,), assumptions=(NOBODY_STEERS,))
    is_auto = asked is Mode.AUTO
    told = {PlanCode.OTHER_TIME_DAEMON} if is_auto else set(_REASON_CODES)
    return Notices(_reasons(plan, told), hints=_reasons(plan, _HINTS_IN_AUTO) if is_auto else ())


def status_notices(status: SuperviseStatus, missing: Collection[str]) -> tuple[Reason, ...]:
    """What is wrong with the programs that should run. `missing` are those whose file is not there.

    One that starts for the first time is not wrong.
    """
    found = (_child_notice(child, child.name in missing) for child in status.children)
    return tuple(reason for reason in found if reason is not None)


def annotated(measurement: Evidence | Silence, notices: Notices) -> Evidence | Silence:
    """The measurement with the notices on it.

    A silence has room for one reason only; with notices it becomes evidence that claims nothing.
    """
    if isinstance(measurement, Evidence):
        hints = notices.hints if measurement.faults else ()
        return replace(
            measurement,
            remarks=(*measurement.remarks, *notices.always, *hints),
            assumptions=(*measurement.assumptions, *notices.assumptions),
        )
    remarks = (*notices.always, *notices.hints)
    if not remarks:
        return measurement
    return Evidence(
        kind=measurement.kind,
        as_of_boot_ns=measurement.as_of_boot_ns,
        bound_ns=None,
        utc_bound_ns=None,
        offset_ns=None,
        reference=Reference(),
        faults=(measurement.reason,),
        remarks=remarks,
    )


def _reasons(plan: Plan, codes: Collection[PlanCode]) -> tuple[Reason, ...]:
    return tuple(Reason(_REASON_CODES[one.code], one.detail) for one in plan.reasons if one.code in codes)


def _child_notice(child: ChildStatus, is_missing: bool) -> Reason | None:
    if is_missing and not child.running:
        detail = f"the program of {child.name} is not there any more; install it again"
        return Reason(ReasonCode.TIME_DAEMON_MISSING, detail)
    if child.crash_loop:
        detail = f"{child.name} ended {child.exits} times, {'now up again' if child.running else 'and is down'}"
        return Reason(ReasonCode.TIME_DAEMON_CRASH_LOOP, f"{detail}: {child.last_exit}; see its lines in the log")
    if not child.running and child.last_exit is not None:
        return Reason(ReasonCode.TIME_DAEMON_DOWN, f"{child.name} is down: {child.last_exit}; it will be started again")
    return None
