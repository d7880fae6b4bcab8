"""What is wrong with this node, and what to do: findings from one look at daemon and node. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from clockgate.v1 import clock_pb2, gate_pb2

from clockgated import units
from clockgated.ctl.advice import HARMLESS, NEXT_STEPS
from clockgated.ctl.node import Node
from clockgated.ctl.status import format_ns, is_usable, printable, reason_name, state_name
from clockgated.manage.facts import TimeDaemon, Tool, Version, spell_version

KNOWN_CHRONY = ((4, 2), (4, 9))
"""Oldest and newest chronyd that generated configurations and reports were tried with."""
KNOWN_LINUXPTP = ((3, 1), (4, 4))

_LEAST_FREE_BYTES = 64 * 1024 * 1024
_LEAST_FREE_FILES = 1000
_USUAL_TICK_US = 10_000
_SLOW_CLOCKSOURCES = ("acpi_pm", "hpet", "jiffies", "refined-jiffies")
_LARGE_FREQ_PPM = 400.0
_COLOURS = {"ok": "\x1b[32m", "note": "\x1b[33m", "fault": "\x1b[31m"}
_PLAIN = "\x1b[0m"


class Level(StrEnum):
    """How bad a finding is: only a fault makes the doctor say no."""

    OK = "ok"
    NOTE = "note"
    FAULT = "fault"


@dataclass(frozen=True)
class Finding:
    """One check's answer. `wanted` and `next_step` are empty when all is well."""

    level: Level
    subject: str
    seen: str
    wanted: str = ""
    next_step: str = ""


@dataclass(frozen=True)
class Answers:
    """What the daemon said. `unreachable` is the sentence for a person when it said nothing.

    `leases` is None where this user may not ask, and `leases_problem` says why.
    """

    reading: clock_pb2.Reading | None
    now_boot_ns: int
    unreachable: str | None = None
    leases: Sequence[gate_pb2.Lease] | None = None
    leases_problem: str = ""


def examine(answers: Answers, node: Node) -> tuple[Finding, ...]:
    """Every check, in the order in which a person would make them."""
    return (
        *_daemon(answers, node),
        *_reading(answers, node),
        *_time_daemons(node),
        *_config(node),
        *_rights(node),
        *_programs(node),
        *_stamping(node),
        *_kernel(node),
        *_disks(node),
        *_leases(answers),
    )


def has_fault(findings: Sequence[Finding]) -> bool:
    """Whether anything needs a person."""
    return any(one.level is Level.FAULT for one in findings)


def as_json(findings: Sequence[Finding], code: int) -> dict[str, Any]:
    """Stable keys; empty texts where there is nothing to say."""
    return {"exit_code": code, "findings": [asdict(one) for one in findings]}


def render(findings: Sequence[Finding], *, in_colour: bool) -> str:
    """One line for each, and for those that are not ok what was wanted and what to do."""
    lines = []
    for one in findings:
        word = f"{_COLOURS[one.level]}{one.level:<5}{_PLAIN}" if in_colour else f"{one.level:<5}"
        lines.append(f"{word}  {one.subject}: {printable(one.seen)}")
        lines += [f"       wanted: {printable(one.wanted)}"] if one.wanted else []
        lines += [f"       next: {printable(one.next_step)}"] if one.next_step else []
    faults = sum(one.level is Level.FAULT for one in findings)
    notes = sum(one.level is Level.NOTE for one in findings)
    return "\n".join([*lines, f"{faults} faults, {notes} notes, {len(findings) - faults - notes} checks passed"])


def _daemon(answers: Answers, node: Node) -> Iterator[Finding]:
    if answers.unreachable is None:
        yield Finding(Level.OK, "clockgated", "answers")
    else:
        unit = node.unit
        state = f" (systemd: {unit.active})" if unit is not None else ""
        yield Finding(
            Level.FAULT,
            "clockgated",
            f"{answers.unreachable}{state}",
            "a daemon that answers",
            "look at `systemctl status clockgated` and `journalctl -u clockgated`",
        )
    if (
        node.unit is not None
        and node.unit.active == "active"
        and node.unit.enabled not in ("enabled", "enabled-runtime")
    ):
        yield Finding(
            Level.NOTE,
            "clockgated.service",
            f"{node.unit.enabled or 'not enabled'}: it does not come back after a reboot",
            "enabled",
            "systemctl enable clockgated",
        )


def _reading(answers: Answers, node: Node) -> Iterator[Finding]:
    reading = answers.reading
    if reading is None:
        return
    if node.boot_id and reading.boot_id != node.boot_id:
        yield Finding(
            Level.FAULT,
            "boot id",
            f"the daemon speaks of boot {reading.boot_id}, this is boot {node.boot_id}",
            "the daemon of this very machine: its clock is not the one that is used here",
            "mount this node's own /run/clockgate, or unset CLOCKGATE_ADDRESS",
        )
    usable = is_usable(reading, answers.now_boot_ns)
    if answers.now_boot_ns > reading.void_after_boot_ns:
        yield Finding(
            Level.FAULT,
            "reading",
            "expired: the daemon answers and measures nothing",
            "a measurement every [clock] poll_interval_s",
            "look at `journalctl -u clockgated`; restart it when it hangs",
        )
    bound = f"±{format_ns(reading.relative_bound_ns)}" if reading.HasField("relative_bound_ns") else "unknown"
    level = Level.OK if usable else Level.FAULT
    yield Finding(
        level,
        "clock",
        f"{state_name(reading)}, bound {bound}",
        "" if usable else "SYNCHRONIZED or HOLDOVER with a bound",
        "" if usable else "act on the reasons below",
    )
    for reason in reading.reasons:
        name = reason_name(reason)
        harmless = usable and name in HARMLESS
        yield Finding(
            Level.NOTE if usable else Level.FAULT,
            name,
            reason.detail,
            "" if harmless else "no such reason",
            NEXT_STEPS.get(name, "look it up in docs/troubleshooting.md"),
        )


def _time_daemons(node: Node) -> Iterator[Finding]:
    found = node.facts.time_daemons
    steering = [one for one in found if one.may_steer is not False]
    if len(steering) > 1:
        yield Finding(
            Level.FAULT,
            "time daemons",
            f"{_listed(steering)} may all set this clock",
            "one program that steers",
            "stop all but one, or let clockgated replace them: [clock] take_over = true",
        )
    elif steering and node.config.mode not in ("observe", ""):
        yield Finding(
            Level.NOTE,
            "time daemons",
            f"{_listed(steering)} steers, so clockgated observes",
            f'none beside clockgated\'s own in mode "{node.config.mode}"',
            "stop it, or set [clock] take_over = true",
        )
    elif steering:
        yield Finding(Level.OK, "time daemons", f"{_listed(steering)} steers, clockgated observes")
    elif node.config.mode == "observe":
        yield Finding(
            Level.FAULT,
            "time daemons",
            "none runs, and clockgated only observes: nobody steers this clock",
            "chronyd, or a mode in which clockgated runs one",
            "; ".join(node.config.why) or 'apt-get install chrony, or set [clock] mode = "auto" and [ntp] servers',
        )
    else:
        yield Finding(Level.OK, "time daemons", "none beside clockgated's own")


def _listed(daemons: Sequence[TimeDaemon]) -> str:
    return ", ".join(f"{one.program} ({one.unit or f'pid {one.pid}'})" for one in daemons)


def _config(node: Node) -> Iterator[Finding]:
    config = node.config
    for problem in config.problems:
        yield Finding(
            Level.FAULT,
            "configuration",
            problem,
            "a file that clockgated takes",
            f"clockgated --check --config {config.path}",
        )
    if not config.problems:
        name = str(config.path) if config.exists else f"{config.path} is not there: the defaults hold"
        why = f" ({'; '.join(config.why)})" if config.why else ""
        yield Finding(Level.OK, "configuration", f'{name}; a start here would run mode "{config.mode}"{why}')


def _rights(node: Node) -> Iterator[Finding]:
    if not node.is_root:
        yield Finding(
            Level.NOTE, "rights", "not root: leases and some processes cannot be seen", "", "sudo clockgatectl doctor"
        )
    if node.container is None:
        return
    if node.facts.has_clock_right:
        yield Finding(Level.OK, "container", f"{node.container}, with the right to set the host's clock (CAP_SYS_TIME)")
    else:
        yield Finding(
            Level.NOTE,
            "container",
            f"{node.container}, without CAP_SYS_TIME: nothing in here can steer the clock",
            "clockgated on the host, and its folder /run/clockgate mounted in here",
            "docs/containers.md",
        )


def _programs(node: Node) -> Iterator[Finding]:
    facts = node.facts
    known = (
        ("chronyd", "chrony", facts.chronyd, KNOWN_CHRONY),
        ("ptp4l", "linuxptp", facts.ptp4l, KNOWN_LINUXPTP),
        ("phc2sys", "linuxptp", facts.phc2sys, KNOWN_LINUXPTP),
    )
    for program, package, tool, limits in known:
        yield _program(program, package, tool, limits)


def _program(program: str, package: str, tool: Tool | None, limits: tuple[Version, Version]) -> Finding:
    oldest, newest = limits
    tried = f"{spell_version(oldest)} to {spell_version(newest)}"
    if tool is None:
        need = Level.NOTE if program == "chronyd" else Level.OK
        step = f"apt-get install {package}" if need is Level.NOTE else ""
        return Finding(need, program, "not installed", f"chronyd {tried}" if step else "", step)
    version = spell_version(tool.version)
    if tool.version[:2] < oldest:
        return Finding(Level.FAULT, program, f"version {version}", f"{tried}", f"upgrade the package {package}")
    if tool.version[:2] > newest:
        return Finding(Level.NOTE, program, f"version {version}, newer than what was tried", tried)
    return Finding(Level.OK, program, f"version {version}")


def _stamping(node: Node) -> Iterator[Finding]:
    interfaces = [one for one in node.facts.interfaces if one.operstate == "up"]
    hardware = [f"{one.name} (/dev/ptp{one.phc_index})" for one in interfaces if one.has_hardware_stamps]
    software = [one.name for one in interfaces if one.has_software_stamps and not one.has_hardware_stamps]
    if hardware:
        yield Finding(
            Level.OK, "timestamps", f"hardware: {', '.join(hardware)}; claimed by the driver, tried at each start"
        )
    elif node.config.mode in ("ptp", "ptp+ntp"):
        yield Finding(
            Level.NOTE,
            "timestamps",
            f"software only ({', '.join(software) or 'no interface is up'})",
            "hardware timestamps, for bounds of microseconds",
            "use another interface or network card",
        )
    else:
        yield Finding(Level.OK, "timestamps", f"software: {', '.join(software) or 'no interface is up'}")


def _kernel(node: Node) -> Iterator[Finding]:
    kernel = node.kernel
    if kernel is None:
        yield Finding(Level.NOTE, "kernel clock", "adjtimex is forbidden here", "a look at the kernel's variables")
        return
    seen = f"{kernel.freq_ppm:+.3f} ppm, maximum error {format_ns(kernel.maxerror_us * units.NS_PER_US)}"
    if kernel.tick_us != _USUAL_TICK_US or abs(kernel.freq_ppm) > _LARGE_FREQ_PPM:
        yield Finding(
            Level.NOTE,
            "kernel clock",
            f"{seen}, tick {kernel.tick_us} µs",
            f"tick {_USUAL_TICK_US} µs and at most {_LARGE_FREQ_PPM:g} ppm: more is a broken oscillator or a leftover",
            "restart the time daemon; watch whether it returns",
        )
    else:
        flag = ", flagged unsynchronised (chronyd without `rtcsync` leaves that)" if kernel.is_unsynchronised else ""
        yield Finding(Level.OK, "kernel clock", seen + flag)
    if kernel.clocksource in _SLOW_CLOCKSOURCES:
        yield Finding(
            Level.NOTE,
            "clocksource",
            f"{kernel.clocksource} of {', '.join(kernel.clocksources)}",
            "tsc, or the hypervisor's own clock: others are slow and coarse",
            "look for `clocksource` in `dmesg`: the kernel says why it gave up the TSC",
        )
    if node.rtc_is_local:
        yield Finding(
            Level.NOTE,
            "hardware clock",
            "keeps local time: each boot starts hours off until the first step",
            "UTC",
            "timedatectl set-local-rtc 0",
        )


def _disks(node: Node) -> Iterator[Finding]:
    for disk in node.disks:
        is_full = disk.free_bytes < _LEAST_FREE_BYTES
        lacks_files = disk.free_files is not None and disk.free_files < _LEAST_FREE_FILES
        seen = f"{disk.free_bytes // (1024 * 1024)} MiB free" + (f", {disk.free_files} files" if lacks_files else "")
        if is_full or lacks_files:
            wanted = f"{_LEAST_FREE_BYTES // (1024 * 1024)} MiB and {_LEAST_FREE_FILES} files free"
            yield Finding(Level.FAULT, disk.folder, seen, wanted, f"make room on the file system of {disk.folder}")
        else:
            yield Finding(Level.OK, disk.folder, seen)


def _leases(answers: Answers) -> Iterator[Finding]:
    if answers.leases is None:
        if answers.leases_problem:
            yield Finding(Level.NOTE, "leases", answers.leases_problem, "", "run as root")
        return
    jobs = sorted({printable(one.job) for one in answers.leases})
    seen = f"{len(answers.leases)} open, of {', '.join(jobs)}" if jobs else "none is open: the clock may be stepped"
    yield Finding(Level.OK, "leases", seen)
