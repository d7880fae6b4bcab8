"""Looks at the machine apart from its devices: pressure, memory, load, sensors, disks. Reads files only."""

import os
import re
from pathlib import Path

from clockgated.node.facts import Disk, HostLook, Pressure, Temperature
from clockgated.tuning.roots import Roots, names_in, number_of, raw_text_of, text_of

_SENSOR_NOISE_CELSIUS = 150.0
"""Sensors that nothing is connected to report such temperatures, or ones far below zero."""


def look_host(roots: Roots) -> HostLook:
    """The machine now."""
    proc = roots.proc
    memory = parse_meminfo(raw_text_of(proc / "meminfo") or "")
    corrected, uncorrected = _memory_errors(roots.sys)
    return HostLook(
        pressure=_pressure(proc / "pressure"),
        memory_total_bytes=memory.get("MemTotal"),
        memory_available_bytes=memory.get("MemAvailable"),
        load_5min=parse_load(text_of(proc / "loadavg") or ""),
        cpu_count=_cpus_online(text_of(roots.sys / "devices/system/cpu/online") or ""),
        oom_kills=parse_counter(raw_text_of(proc / "vmstat") or "", "oom_kill"),
        memory_errors_corrected=corrected,
        memory_errors_uncorrected=uncorrected,
        clocksource=text_of(roots.sys / "devices/system/clocksource/clocksource0/current_clocksource") or "",
        taint=number_of(proc / "sys/kernel/tainted"),
        temperatures=_temperatures(roots.sys / "class/thermal"),
    )


def look_disks(folders: tuple[str, ...], roots: Roots) -> tuple[Disk, ...]:
    """The file systems of `folders`; a folder that is not there yet is judged by the nearest one above it."""
    mounts = raw_text_of(roots.proc / "self/mountinfo") or ""
    return tuple(_disk(folder, mounts) for folder in dict.fromkeys(folders))


def is_device_read_only(mounts: str, device: int) -> bool | None:
    """Whether the file system on `device` (st_dev) takes no writes, by /proc/self/mountinfo; None when it is not there.

    Not whether this mount of it does: a sandbox shows most of them read-only.
    """
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        mounted, dash, system = line.partition(" - ")
        fields, words = mounted.split(" "), system.split(" ")
        if dash and len(fields) > 2 and fields[2] == number and len(words) > 2:
            return "ro" in words[2].split(",")
    return None


def parse_pressure(text: str, kind: str) -> float | None:
    """The 60 s average of `kind` ("some" or "full") in a file of /proc/pressure, percent."""
    found = re.search(rf"^{kind} .*\bavg60=(\d+(?:\.\d+)?)", text, re.MULTILINE)
    return float(found[1]) if found else None


def parse_meminfo(text: str) -> dict[str, int]:
    """The sizes of /proc/meminfo in bytes."""
    return {name: int(size) * 1024 for name, size in re.findall(r"^(\w+):\s+(\d{1,15}) kB$", text, re.MULTILINE)}


def parse_load(text: str) -> float | None:
    """The 5 minute average of /proc/loadavg."""
    found = re.match(r"\d+\.\d+ (\d+\.\d+) ", text)
    return float(found[1]) if found else None


def parse_counter(text: str, name: str) -> int | None:
    """The counter `name` of a file of "name value" lines."""
    found = re.search(rf"^{name} (\d{{1,20}})$", text, re.MULTILINE)
    return int(found[1]) if found else None


def _pressure(folder: Path) -> Pressure:
    return Pressure(
        parse_pressure(raw_text_of(folder / "cpu") or "", "some"),
        parse_pressure(raw_text_of(folder / "memory") or "", "full"),
        parse_pressure(raw_text_of(folder / "io") or "", "full"),
    )


def _cpus_online(text: str) -> int | None:
    parts = re.findall(r"(\d{1,6})(?:-(\d{1,6}))?", text)
    return sum(max(0, int(last or first) - int(first)) + 1 for first, last in parts) if parts else None


def _memory_errors(sys: Path) -> tuple[int | None, int | None]:
    """Corrected and uncorrected errors over all memory controllers; None for both without a driver."""
    folder = sys / "devices/system/edac/mc"
    controllers = [name for name in names_in(folder) if re.fullmatch(r"mc\d+", name)]
    if not controllers:
        return None, None
    counts = [[number_of(folder / name / kind) or 0 for name in controllers] for kind in ("ce_count", "ue_count")]
    return sum(counts[0]), sum(counts[1])


def _temperatures(folder: Path) -> tuple[Temperature, ...]:
    found = []
    for zone in (name for name in names_in(folder) if name.startswith("thermal_zone")):
        millicelsius = number_of(folder / zone / "temp")
        if millicelsius is not None and 0 < millicelsius / 1000 < _SENSOR_NOISE_CELSIUS:
            kind = text_of(folder / zone / "type") or ""
            found.append(Temperature(f"{zone} {kind}".strip(), millicelsius / 1000, _critical(folder / zone)))
    return tuple(found)


def _critical(zone: Path) -> float | None:
    points = []
    for name in names_in(zone):
        if re.fullmatch(r"trip_point_\d+_type", name) and text_of(zone / name) in ("hot", "critical"):
            millicelsius = number_of(zone / name.replace("_type", "_temp"))
            if millicelsius is not None and millicelsius > 0:
                points.append(millicelsius / 1000)
    return min(points, default=None)


def _disk(folder: str, mounts: str) -> Disk:
    path = Path(folder)
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        told, device = os.statvfs(path), path.stat().st_dev
    except OSError:
        return Disk(folder)
    return Disk(
        folder,
        total_bytes=told.f_blocks * told.f_frsize,
        free_bytes=told.f_bavail * told.f_frsize,
        # Zero of both: the file system makes room for files as they come.
        total_files=told.f_files or None,
        free_files=told.f_favail if told.f_files else None,
        is_read_only=is_device_read_only(mounts, device),
    )
