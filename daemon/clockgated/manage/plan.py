"""The plan: every file and every command of clock management, as data. Pure and deterministic.

The same settings and facts give the same plan, byte for byte, whatever order they came in: a plan that changes by
itself would restart time daemons for nothing.
"""

import json
import shlex
from dataclasses import asdict

from clockgated.manage.assemble import Assembly
from clockgated.manage.facts import Facts
from clockgated.manage.mode import choose_mode
from clockgated.manage.planned import Folders, Plan, PlannedDaemon
from clockgated.manage.settings import ManageSettings, Mode, problems
from clockgated.manage.takeover import decide_take_over
from clockgated.units import NS_PER_MS, PPB_PER_PPM

_LONGEST_SOCKET_PATH = 107

# A node's half of the 5 ms at which training warns by default.
_GROWTH_TO_MENTION_NS = 2_500_000


def make_plan(settings: ManageSettings, facts: Facts, folders: Folders) -> Plan:
    """The plan for this host. Raises ValueError for settings or folders whose `problems` are not empty."""
    faults = (*problems(settings), *folders.problems())
    if faults:
        raise ValueError("; ".join(faults))
    choice = choose_mode(settings, facts)
    if choice.mode is Mode.OBSERVE:
        return Plan(Mode.OBSERVE, choice.reasons, warnings=choice.warnings)
    decision = decide_take_over(settings.take_over, facts)
    if not decision.may_steer:
        # The obstacle comes first: it is what the operator has to act on.
        return Plan(Mode.OBSERVE, (*decision.reasons, *choice.reasons), warnings=choice.warnings)
    assembly = Assembly(settings, facts, folders, choice)
    warnings = (*choice.warnings, *decision.warnings, *assembly.losses(), *_warnings(settings, facts, assembly))
    return Plan(
        choice.mode,
        (*choice.reasons, *decision.reasons),
        folders=assembly.folders(),
        files=assembly.files(),
        daemons=assembly.daemons(),
        take_over=decision.units,
        shm_segments=assembly.segments(),
        warnings=tuple(dict.fromkeys(warnings)),
        chrony=assembly.chrony(),
        ptp=assembly.ptp(),
    )


def _warnings(settings: ManageSettings, facts: Facts, assembly: Assembly) -> list[str]:
    """What is weak in a plan that can run."""
    found: list[str] = []
    if not facts.has_clock_right:
        who = "chronyd is run with -x" if assembly.has_chronyd else "ptp4l cannot correct it"
        found.append(f"there is no right to set the clock here (CAP_SYS_TIME): {who}, and nobody steers the clock")
    if assembly.has_chronyd:
        found += _ntp_warnings(settings, facts)
    if settings.ptp.fixed_utc_offset and any(len(group.clocks) > 1 for group in assembly.groups):
        found.append("ptp.fixed_utc_offset has no effect with several hardware clocks: phc2sys asks ptp4l")
    for path in assembly.sockets():
        if len(path.encode()) > _LONGEST_SOCKET_PATH:
            found.append(f"the socket path {path} is longer than {_LONGEST_SOCKET_PATH} bytes: shorten the run folder")
    return found


def _ntp_warnings(settings: ManageSettings, facts: Facts) -> list[str]:
    ntp, drift_ppm = settings.ntp, settings.max_drift_ppm
    found: list[str] = []
    if not ntp.servers and not ntp.pools:
        found.append("no NTP server is set: nothing is left when the only source is lost")
    polls = [(server.host, server.max_poll_log2) for server in ntp.servers]
    polls += [(pool.host, pool.max_poll_log2) for pool in ntp.pools]
    for host, poll_log2 in polls:
        poll_s = 2.0**poll_log2
        growth_ns = drift_ppm * PPB_PER_PPM * poll_s
        if growth_ns > _GROWTH_TO_MENTION_NS:
            found.append(
                f"{host} is polled every {poll_s:g} s at worst; a bound grows by {growth_ns / NS_PER_MS:.1f} ms "
                f"meanwhile at {drift_ppm:g} ppm: lower max_poll_log2 for a tighter one"
            )
    if facts.chronyd_is_confined:
        found.append(
            "AppArmor confines chronyd and may deny it the run and state folders: clockgate-chronyd.service brings a "
            "profile that allows them; without that unit, allow them in /etc/apparmor.d/local/usr.sbin.chronyd"
        )
    return found


def plan_as_json(plan: Plan) -> str:
    """The plan for scripts: the fields of Plan, modes of files as octal text, keys sorted."""
    value = asdict(plan)
    for entry in (*value["folders"], *value["files"]):
        entry["mode"] = f"{entry['mode']:04o}"
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def print_plan(plan: Plan) -> str:
    """The plan for people."""
    lines = [f"mode: {plan.mode}", "why:"]
    lines += [f"  {reason.code}: {reason.detail}" for reason in plan.reasons]
    if plan.warnings:
        lines += ["warnings:", *(f"  - {warning}" for warning in plan.warnings)]
    if plan.take_over:
        lines += [
            "taken over (recorded first, given back on purge):",
            *(f"  {record.unit}" for record in plan.take_over),
        ]
    if plan.folders:
        lines.append("folders:")
        lines += [f"  {folder.path}  {folder.mode:04o} {folder.owner or 'root'}" for folder in plan.folders]
    for file in plan.files:
        lines += [f"file {file.path} ({file.mode:04o}):", *(f"  | {line}" for line in file.text.splitlines())]
    if plan.shm_segments:
        lines.append(f"shared memory: NTP segments {', '.join(str(number) for number in plan.shm_segments)}")
    if plan.daemons:
        lines.append("daemons, in start order:")
        lines += [line for daemon in plan.daemons for line in _daemon_lines(daemon)]
    else:
        lines.append("daemons: none, the clock is only observed")
    return "\n".join(lines) + "\n"


def _daemon_lines(daemon: PlannedDaemon) -> list[str]:
    right = "may set the clock" if daemon.needs_clock_right else "without the right to set the clock"
    lines = [f"  {daemon.name} ({daemon.unit_name}), {right}", f"    {shlex.join(daemon.argv)}"]
    if daemon.restart_argv != daemon.argv:
        lines.append(f"    later in the same boot: {shlex.join(daemon.restart_argv)}")
    if daemon.ready_when.paths:
        lines.append(f"    ready within {daemon.ready_when.within_s:g} s: {', '.join(daemon.ready_when.paths)}")
    return lines
