"""What is wrong with the machine apart from its devices. Pure."""

from collections.abc import Iterable

from clockgated.config import NodeConfig
from clockgated.node.facts import Disk, HostLook, KernelEvent
from clockgated.node.history import History
from clockgated.node.model import Finding, FindingCode, Severity

_GIB = 1 << 30
_TAINTS = {4: "a processor reported an error", 7: "the kernel oopsed", 14: "a processor hung"}  # admin-guide/tainted
_SLOW_CLOCKSOURCES = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")
_PLENTY_BYTES = 50 * _GIB
"""With that much free no file system is nearly full, whatever share it is."""


def judge_host(look: HostLook, history: History, limits: NodeConfig) -> Iterable[Finding]:
    """Findings about processors, memory and sensors."""
    yield from _memory(look, history, limits)
    yield from _pressure(look, limits)
    for one in look.temperatures:
        if one.critical_celsius is not None and one.celsius > one.critical_celsius - limits.temperature_margin_celsius:
            yield Finding(
                FindingCode.TEMPERATURE_HIGH, Severity.WARNING, one.sensor, f"{one.celsius:.0f} °C",
                f"below {one.critical_celsius - limits.temperature_margin_celsius:.0f} °C; its limit is "
                f"{one.critical_celsius:.0f} °C",
                "look at fans, filters and the air of the room",
            )  # fmt: skip
    damage = [text for bit, text in _TAINTS.items() if look.taint is not None and look.taint >> bit & 1]
    if damage:
        yield Finding(
            FindingCode.KERNEL_TAINTED, Severity.WARNING, "kernel", ", ".join(damage) + " since boot",
            "an undamaged kernel", "read `journalctl -k -p err`, save the trace, and boot again",
        )  # fmt: skip
    if look.clocksource in _SLOW_CLOCKSOURCES:
        yield Finding(
            FindingCode.CLOCKSOURCE_SLOW, Severity.WARNING, "clocksource", look.clocksource,
            "tsc, or that of the hypervisor",
            "read why in `journalctl -k | grep -i clocksource`; a firmware update or tsc=reliable may help",
        )  # fmt: skip


def judge_disks(disks: Iterable[Disk], limits: NodeConfig) -> Iterable[Finding]:
    """Findings about file systems."""
    for disk in disks:
        if disk.is_read_only:
            yield Finding(
                FindingCode.DISK_READ_ONLY, Severity.CRITICAL, disk.path, "mounted read-only", "writable",
                "read `journalctl -k -p err` for errors of the disk, then check the file system",
            )  # fmt: skip
        for what, free, total, plenty in (
            ("bytes", disk.free_bytes, disk.total_bytes, _PLENTY_BYTES),
            ("files", disk.free_files, disk.total_files, None),
        ):
            if free is None or not total or (plenty is not None and free >= plenty):
                continue
            free_percent = 100 * free / total
            if free_percent < limits.disk_low_percent:
                is_full = free_percent < limits.disk_low_percent / 5
                yield Finding(
                    FindingCode.DISK_FULL, Severity.CRITICAL if is_full else Severity.WARNING, f"{disk.path} ({what})",
                    f"{free_percent:.1f} % free", f"at least {limits.disk_low_percent:g} %",
                    "delete or move what is not needed; old checkpoints first",
                )  # fmt: skip


def judge_kernel(events: Iterable[KernelEvent], now_boot_ns: int, hold_ns: int) -> Iterable[Finding]:
    """Findings about the kernel's messages but those of GPU drivers, of the last `hold_ns`."""
    newest: dict[str, KernelEvent] = {}
    for event in events:
        if event.kind != "xid" and now_boot_ns - event.seen_boot_ns < hold_ns:
            newest[f"{event.kind} {event.subject}" if event.subject != event.kind else event.kind] = event
    for subject, event in newest.items():
        yield Finding(
            FindingCode.KERNEL_MESSAGE, Severity.WARNING, subject, event.text[:200], "no such message",
            "read `journalctl -k`; hardware errors mean a service call, hung tasks a file system that hangs",
        )  # fmt: skip


def _memory(look: HostLook, history: History, limits: NodeConfig) -> Iterable[Finding]:
    total, available = look.memory_total_bytes, look.memory_available_bytes
    if total and available is not None and 100 * available / total < limits.memory_low_percent:
        yield Finding(
            FindingCode.MEMORY_LOW, Severity.WARNING, "memory",
            f"{available / _GIB:.1f} of {total / _GIB:.1f} GiB available", f"at least {limits.memory_low_percent:g} %",
            "look for what grows with `ps --sort=-rss aux | head`",
        )  # fmt: skip
    killed = history.rises.get("oom_kills")
    if killed is not None:
        yield Finding(
            FindingCode.OOM_KILL, Severity.WARNING, "memory", f"{killed.amount} processes killed lately", "none",
            "read `journalctl -k | grep -i oom` for which, and give the job more memory or fewer workers",
        )  # fmt: skip
    uncorrected, rise = look.memory_errors_uncorrected, history.rises.get("memory.uncorrected")
    if uncorrected:
        yield Finding(
            FindingCode.MEMORY_ERRORS, Severity.CRITICAL if rise else Severity.WARNING, "memory (uncorrected)",
            f"{uncorrected} uncorrected errors since boot", "none", "drain the node and have the module replaced",
        )  # fmt: skip
    corrected = history.rises.get("memory.corrected")
    if corrected is not None:
        yield Finding(
            FindingCode.MEMORY_ERRORS, Severity.INFO, "memory (corrected)",
            f"{corrected.amount} corrected errors lately", "none",
            "have the module replaced when they go on: `ras-mc-ctl --errors` tells which",
        )  # fmt: skip


def _pressure(look: HostLook, limits: NodeConfig) -> Iterable[Finding]:
    seen = look.pressure
    for code, severity, value, limit, what, step in (
        (FindingCode.MEMORY_PRESSURE, Severity.WARNING, seen.memory_full_percent, limits.memory_pressure_percent,
         "all tasks wait for memory", "give jobs less memory than the node has; look for swapping with `vmstat 1`"),
        (FindingCode.IO_PRESSURE, Severity.INFO, seen.io_full_percent, limits.io_pressure_percent,
         "all tasks wait for disks", "look for the busy disk with `iostat -x 1`"),
        (FindingCode.CPU_PRESSURE, Severity.INFO, seen.cpu_some_percent, limits.cpu_pressure_percent,
         "some task waits for a processor", "run fewer data workers, or bind them: OMP_NUM_THREADS, taskset"),
    ):  # fmt: skip
        if value is not None and value > limit:
            subject = {"MEMORY_PRESSURE": "memory", "IO_PRESSURE": "disks", "CPU_PRESSURE": "processors"}[code.name]
            yield Finding(
                code, severity, subject, f"{what} {value:.0f} % of the last minute", f"at most {limit:g} %", step
            )
