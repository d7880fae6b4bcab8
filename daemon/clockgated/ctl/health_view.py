"""The health of a node for a person: pure functions of one message."""

from clockgate.v1 import node_pb2

from clockgated import units
from clockgated.ctl.status import printable
from clockgated.ctl.tune import enum_name

_GIB = 1 << 30
_RED, _YELLOW, _GREEN, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[0m"
_COLOURS = {
    node_pb2.HEALTH_STATE_HEALTHY: _GREEN, node_pb2.HEALTH_STATE_DEGRADED: _YELLOW,
    node_pb2.HEALTH_STATE_UNHEALTHY: _RED,
}  # fmt: skip
_OLD_NS = 60 * units.NS_PER_S


def render(health: node_pb2.NodeHealth, *, in_colour: bool = False) -> str:
    """The state, every finding with what to do, and one line for each kind of fact."""
    state = enum_name(node_pb2.HealthState, health.state, "HEALTH_STATE_")
    colour = _COLOURS.get(health.state, "") if in_colour else ""
    age = f"   (looked {health.age_ns / units.NS_PER_S:.0f} s ago)"
    warning = "; clockgated does not look any more" if health.age_ns > _OLD_NS else ""
    lines = [f"{colour}{state}{_PLAIN if colour else ''}{age}{warning}"]
    for finding in health.findings:
        lines += _finding(finding, health.as_of_boot_ns)
    return "\n".join([*lines, *_facts(health)])


def _finding(finding: node_pb2.Finding, now_boot_ns: int) -> list[str]:
    severity = enum_name(node_pb2.Severity, finding.severity, "SEVERITY_")
    code = enum_name(node_pb2.FindingCode, finding.code, "FINDING_CODE_")
    since_s = max(0, now_boot_ns - finding.since_boot_ns) / units.NS_PER_S
    return [
        f"  {severity:<8} {code}  {printable(finding.subject)}: {printable(finding.value)}",
        f"           wanted: {printable(finding.wanted)}; for {since_s:.0f} s",
        f"           next: {printable(finding.next_step)}",
    ]


def _facts(health: node_pb2.NodeHealth) -> list[str]:
    rows = [("processors", _processors(health.host)), ("memory", _memory(health.host))]
    rows += [("room", _room(disk)) for disk in health.disks]
    rows += [("temperature", f"{one.sensor} {one.celsius:.0f} °C") for one in health.host.temperatures]
    rows += [(f"gpu {gpu.index}", gpu_line(gpu)) for gpu in health.gpus]
    return [f"  {name:<16}{printable(value)}" for name, value in rows if value]


def gpu_line(gpu: node_pb2.Gpu) -> str:
    """Name and figures of one GPU; what it does not tell is left out."""
    parts = [gpu.name or "unknown model"]
    if gpu.HasField("utilization_percent"):
        parts.append(f"{gpu.utilization_percent:.0f} % busy")
    if gpu.HasField("memory_used_bytes") and gpu.HasField("memory_total_bytes"):
        parts.append(f"{gpu.memory_used_bytes / _GIB:.1f} of {gpu.memory_total_bytes / _GIB:.1f} GiB")
    if gpu.HasField("temperature_celsius"):
        parts.append(f"{gpu.temperature_celsius:.0f} °C")
    if gpu.HasField("power_milliwatts"):
        parts.append(f"{gpu.power_milliwatts / 1000:.0f} W")
    if gpu.HasField("ecc_uncorrected"):
        parts.append(f"{gpu.ecc_uncorrected} uncorrected errors")
    if gpu.throttle_reasons:
        parts.append("slowed by " + ", ".join(gpu.throttle_reasons))
    return ", ".join(parts)


def _processors(host: node_pb2.HostFacts) -> str:
    parts = [f"{host.cpu_count} online"] if host.HasField("cpu_count") else []
    parts += [f"load {host.load_5min:.2f}"] if host.HasField("load_5min") else []
    if host.HasField("cpu_some_percent"):
        parts.append(f"waited for {host.cpu_some_percent:.0f} % of the last minute")
    parts += [f"clock source {host.clocksource}"] if host.clocksource else []
    return ", ".join(parts)


def _memory(host: node_pb2.HostFacts) -> str:
    parts = []
    if host.HasField("memory_available_bytes") and host.HasField("memory_total_bytes"):
        available, total = host.memory_available_bytes / _GIB, host.memory_total_bytes / _GIB
        parts.append(f"{available:.1f} of {total:.1f} GiB available")
    if host.HasField("memory_full_percent"):
        parts.append(f"waited for {host.memory_full_percent:.0f} % of the last minute")
    parts += [f"{host.oom_kills} killed for want of it"] if host.HasField("oom_kills") else []
    if host.HasField("memory_errors_uncorrected"):
        parts.append(f"{host.memory_errors_corrected} corrected and {host.memory_errors_uncorrected} other errors")
    return ", ".join(parts)


def _room(disk: node_pb2.Disk) -> str:
    if not disk.HasField("free_bytes"):
        return f"{disk.path}: unknown"
    return f"{disk.path}: {disk.free_bytes / _GIB:.1f} of {disk.total_bytes / _GIB:.1f} GiB free"
