"""What to do about other programs that may write the clock. Pure: records and commands are data.

Without `take_over` the clock is observed and the others are named. With it their units are recorded, disabled and
masked: disabling keeps them from the next boot, masking from being started by a D-Bus call or another unit. The record
has what is needed to give them back as they were.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from clockgated.manage.facts import Facts, TimeDaemon, UnitState
from clockgated.manage.mode import PlanCode, PlanReason

Command = tuple[str, ...]

# Programs that steer a hardware clock need no right to set the system's, so the lack of it does not clear them.
_HARDWARE_PROGRAMS = frozenset({"ptp4l", "phc2sys", "ts2phc", "timemaster"})


@dataclass(frozen=True)
class UnitRecord:
    """One unit as it was before it was taken over; written to disk before anything is changed."""

    unit: str
    was_enabled: bool
    was_active: bool
    was_masked: bool


@dataclass(frozen=True)
class TakeOver:
    """The decision. `may_steer` False: observe only. `units` are to be recorded, then stopped and disabled."""

    may_steer: bool
    units: tuple[UnitRecord, ...] = ()
    reasons: tuple[PlanReason, ...] = ()
    warnings: tuple[str, ...] = ()


def decide_take_over(take_over: bool, facts: Facts) -> TakeOver:
    """Whether the planned daemons may run beside what the host runs already."""
    rivals = sorted((one for one in facts.time_daemons if is_rival(one)), key=lambda one: (one.program, one.pid))
    dormant = tuple(
        state
        for state in sorted(facts.time_units, key=lambda state: state.unit)
        if state.is_enabled and not state.is_masked and not _runs(state, rivals)
    )
    if not take_over:
        warnings = tuple(
            f"{state.unit} is enabled and would steer the clock beside clockgated if it were started: disable it, or "
            "set take_over = true"
            for state in dormant
        )
        if not rivals:
            return TakeOver(True, warnings=warnings)
        return TakeOver(False, reasons=tuple(_other(one, "set take_over = true, or stop it") for one in rivals))
    strays = [one for one in rivals if one.unit is None]
    if strays:
        return TakeOver(
            False,
            reasons=tuple(
                _other(one, f"it belongs to no unit and cannot be taken over: end process {one.pid}") for one in strays
            ),
        )
    names = sorted({one.unit for one in rivals if one.unit is not None} | {state.unit for state in dormant})
    return TakeOver(
        True,
        units=tuple(_record(facts, name, rivals) for name in names),
        reasons=tuple(_other(one, "it is taken over: stopped, disabled and masked until given back") for one in rivals),
    )


def is_rival(daemon: TimeDaemon) -> bool:
    """Whether the process may write a clock that we would steer. One that cannot is left alone."""
    return daemon.may_steer is not False or daemon.program in _HARDWARE_PROGRAMS


def take(record: UnitRecord) -> tuple[Command, ...]:
    """Commands that silence one recorded unit, in order. Each does nothing when already done."""
    if record.was_masked:
        return (("systemctl", "stop", record.unit),)
    return (("systemctl", "disable", "--now", record.unit), ("systemctl", "mask", record.unit))


def give_back(record: UnitRecord) -> tuple[Command, ...]:
    """Commands that bring one unit back to its record, in order. Ours must have stopped before."""
    if record.was_masked:
        return ()
    commands: list[Command] = [("systemctl", "unmask", record.unit)]
    if record.was_enabled:
        commands.append(("systemctl", "enable", record.unit))
    if record.was_active:
        commands.append(("systemctl", "start", record.unit))
    return tuple(commands)


def merged(recorded: Sequence[UnitRecord], more: Sequence[UnitRecord]) -> tuple[UnitRecord, ...]:
    """Both, by unit. The older record stands: at the second look a unit is as we left it, not as we found it."""
    return tuple({record.unit: record for record in (*more, *recorded)}.values())


def _runs(state: UnitState, rivals: list[TimeDaemon]) -> bool:
    return any(one.unit == state.unit for one in rivals)


def _record(facts: Facts, name: str, rivals: list[TimeDaemon]) -> UnitRecord:
    state = next((state for state in facts.time_units if state.unit == name), None)
    is_running = any(one.unit == name for one in rivals)
    if state is None:
        return UnitRecord(name, was_enabled=False, was_active=is_running, was_masked=False)
    return UnitRecord(name, state.is_enabled, state.is_active or is_running, state.is_masked)


def _other(daemon: TimeDaemon, next_step: str) -> PlanReason:
    owner = daemon.unit or "no unit"
    return PlanReason(
        PlanCode.OTHER_TIME_DAEMON, f"{daemon.program} (pid {daemon.pid}, {owner}) may steer the clock: {next_step}"
    )
