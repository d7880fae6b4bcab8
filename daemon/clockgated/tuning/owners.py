"""Who else sets what tuning would set: sysctl files, TuneD, NetworkManager, irqbalance. Reads files and /proc only."""

import configparser
from collections.abc import Collection, Mapping
from pathlib import Path

from clockgated.tuning.facts import GOVERNOR, Owners
from clockgated.tuning.model import Owner, OwnerKind, normal
from clockgated.tuning.roots import Roots, names_in, raw_text_of, text_of
from clockgated.tuning.sysctl_files import merged, read_files

_TUNED_FOLDERS = ("etc/tuned/profiles", "etc/tuned", "usr/lib/tuned/profiles", "usr/lib/tuned")
_MOST_INCLUDES = 20
# What TuneD's plugins set, in the words of its profile files, and the name of the knob that this is here.
_TUNED_KNOBS = {("cpu", "governor"): GOVERNOR}


def read_owners(roots: Roots) -> Owners:
    """Everybody who is known to write here."""
    programs = running_programs(roots)
    profile = text_of(roots.root / "etc/tuned/active_profile") if "tuned" in programs else None
    return Owners(
        sysctls=merged(*read_files(roots.root)),
        tuned_profile=profile or None,
        tuned_sysctls=_tuned_knobs(profile or "", roots.root),
        network_manager=_managed_links(roots.root) if "NetworkManager" in programs else {},
        irqbalance_runs="irqbalance" in programs,
    )


def running_writers(roots: Roots) -> tuple[Owner, ...]:
    """The programs running now that set what tuning sets; the first suspects when a value has changed."""
    programs, found = running_programs(roots), []
    if "tuned" in programs:
        profile = text_of(roots.root / "etc/tuned/active_profile") or "unknown"
        found.append(Owner(OwnerKind.TUNED, f"tuned profile {profile}"))
    if "NetworkManager" in programs:
        found.append(Owner(OwnerKind.NETWORK_MANAGER, "NetworkManager.service"))
    if "irqbalance" in programs:
        found.append(Owner(OwnerKind.IRQBALANCE, "irqbalance.service"))
    return tuple(found)


def running_programs(roots: Roots) -> Collection[str]:
    """The names of all processes; for scripts (tuned is one) also the name of the script."""
    found: set[str] = set()
    for pid in names_in(roots.proc):
        if pid.isdecimal():
            found.add(text_of(roots.proc / pid / "comm") or "")
            words = (raw_text_of(roots.proc / pid / "cmdline") or "").split("\0")
            if len(words) > 1 and "python" in words[0]:
                script = next((word for word in words[1:] if not word.startswith("-")), "")
                found.add(script.rpartition("/")[2])
    return found


def _tuned_knobs(profiles: str, root: Path) -> Mapping[str, Owner]:
    found: dict[str, Owner] = {}
    waiting, seen = profiles.split(), 0
    while waiting and seen < _MOST_INCLUDES:
        name, seen = waiting.pop(), seen + 1
        file = next((p for f in _TUNED_FOLDERS if (p := root / f / name / "tuned.conf").is_file()), None)
        parser = _ini(raw_text_of(file) if file is not None else None)
        for section, key, value in _entries(parser):
            place = f"tuned profile {name} ({_seen(file, root)})"
            if section == "main" and key == "include":
                waiting += value.replace(",", " ").split()
            elif section.partition("_")[0] == "sysctl" or "sysctl" in (parser.get(section, "type", fallback="") or ""):
                # A leading > or < is TuneD's word for "only raise" and "only lower".
                found.setdefault(key, Owner(OwnerKind.TUNED, place, normal(value.lstrip("<>="))))
            elif (section, key) in _TUNED_KNOBS:
                found.setdefault(_TUNED_KNOBS[section, key], Owner(OwnerKind.TUNED, place, normal(value)))
    return found


def _managed_links(root: Path) -> Mapping[str, Owner]:
    """What NetworkManager's connections set, as "IFINDEX.mtu" or "IFINDEX.ethtool"."""
    connections = {}
    for folder in ("etc/NetworkManager/system-connections", "run/NetworkManager/system-connections"):
        for name in names_in(root / folder):
            parser = _ini(raw_text_of(root / folder / name))
            uuid = parser.get("connection", "uuid", fallback=None)
            if uuid:
                connections[uuid] = (f"/{folder}/{name}", parser)
    found: dict[str, Owner] = {}
    for index in names_in(root / "run/NetworkManager/devices"):
        device = _ini(raw_text_of(root / "run/NetworkManager/devices" / index))
        uuid = device.get("device", "connection-uuid", fallback=None)
        if uuid not in connections:
            continue
        place, parser = connections[uuid]
        mtu = parser.get("ethernet", "mtu", fallback=None) or parser.get("802-3-ethernet", "mtu", fallback=None)
        if mtu is not None and mtu not in ("", "0", "auto"):
            found[f"{index}.mtu"] = Owner(OwnerKind.NETWORK_MANAGER, place, mtu)
        if parser.has_section("ethtool"):
            found[f"{index}.ethtool"] = Owner(OwnerKind.NETWORK_MANAGER, place)
    return found


def _ini(text: str | None) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys are told apart by case
    try:
        parser.read_string(text or "")
    except configparser.Error:
        # A file that its owner cannot read either sets nothing.
        parser.clear()
    return parser


def _entries(parser: configparser.ConfigParser) -> list[tuple[str, str, str]]:
    return [(section, key, value or "") for section in parser.sections() for key, value in parser.items(section)]


def _seen(file: Path | None, root: Path) -> str:
    return "no file" if file is None else f"/{file.relative_to(root)}"
