"""Profiles: which rules may set something, and the few numbers that a rule cannot measure. TOML files, no code.

A site puts NAME.toml into the profile folder; it begins from the profile that `extends` names. Everything that a file
may hold is a field of Profile. `parse` is pure.
"""

import difflib
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from clockgated import trust
from clockgated.config_values import Kind, Switch, Text, Texts, Whole
from clockgated.errors import ConfigError
from clockgated.tuning.model import normal

BUILT_IN = ("none", "tcp", "roce", "ib", "wan")
AUTO = "auto"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_MOST_EXTENDS = 10
_SHOWN_CHARACTERS = 64  # as many as a name may have, and one more


@dataclass(frozen=True)
class Pairs:
    """A table of sysctl keys with their values, texts or whole numbers."""

    wanted: str = "a table of sysctl keys with texts or whole numbers"

    def read(self, value: object) -> Mapping[str, str]:
        """See Kind."""
        if not isinstance(value, dict):
            raise ValueError
        for key, one in value.items():
            if isinstance(one, bool) or not isinstance(one, str | int) or not re.fullmatch(r"[\w./-]+", key):
                raise ValueError
            if ".." in key or "//" in key or key.startswith((".", "/")) or "." not in key:
                raise ValueError
        return {key: normal(str(one)) for key, one in value.items()}


@dataclass(frozen=True)
class Profile:
    """One profile. A switch that is off leaves its rule with reporting; None leaves a number alone."""

    name: str
    summary: Annotated[str, Text("one sentence")] = ""
    links: Annotated[tuple[str, ...], Texts("a list of interface names or patterns (eth*)")] = ()
    """Links whose own settings may be changed; empty: all hardware links that are up."""
    override: Annotated[tuple[str, ...], Texts("a list of sysctl keys, or of subjects as the plan shows them")] = ()
    """Keys that are set although somebody else owns them."""
    socket_buffers: Annotated[bool, Switch()] = False
    path_mbps: Annotated[int | None, Whole(1, 10_000_000)] = None
    """Rate of the path to the peers, where no link tells it (tunnels, virtual machines) or the path is slower."""
    flows: Annotated[int, Whole(1, 100_000)] = 16
    """Connections that may be busy at once; they share TCP's memory."""
    buffer_limit_mib: Annotated[int, Whole(1, 2047)] = 512
    setsockopt_mib: Annotated[int | None, Whole(1, 2047)] = None
    """What a program asks for with setsockopt, if one does; nothing else is bound by rmem_max and wmem_max."""
    no_slow_start_after_idle: Annotated[bool, Switch()] = False
    mtu_probing: Annotated[bool, Switch()] = False
    congestion_control: Annotated[str | None, Text("the name of a congestion control")] = None
    fair_queueing: Annotated[bool, Switch()] = False
    no_metrics_save: Annotated[bool, Switch()] = False
    notsent_lowat_bytes: Annotated[int | None, Whole(4096, 1 << 31)] = None
    world_size: Annotated[int | None, Whole(1, 65535)] = None
    """Ranks of the largest job, whose rendezvous this node may host."""
    port_range: Annotated[str | None, Text("two ports, the lower first")] = None
    """Ports that the site's firewall lets pass between nodes."""
    neighbour_table: Annotated[bool, Switch()] = False
    backlog: Annotated[bool, Switch()] = False
    rings: Annotated[bool, Switch()] = False
    channels: Annotated[bool, Switch()] = False
    irq_affinity: Annotated[bool, Switch()] = False
    receive_steering: Annotated[bool, Switch()] = False
    eee_off: Annotated[bool, Switch()] = False
    mtu_bytes: Annotated[int | None, Whole(1280, 65535)] = None
    """The MTU that all peers and the path between them were agreed to carry."""
    rdma: Annotated[bool, Switch()] = False
    """Whether the job needs an RDMA device, and so memory that it may pin."""
    governor: Annotated[bool, Switch()] = False
    numa_balancing_off: Annotated[bool, Switch()] = False
    """For nodes whose processes are pinned."""
    hugepages: Annotated[int | None, Whole(0, 1 << 30)] = None
    hugepages_consumer: Annotated[str | None, Text("the program that uses them")] = None
    sysctl: Annotated[Mapping[str, str], Pairs()] = field(default_factory=dict)
    """Further keys with the site's own values."""


_KINDS: dict[str, Kind] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(Profile, include_extras=True).items()
    if hasattr(hint, "__metadata__")
}


def load(name: str, folder: Path) -> Profile:
    """The profile `name`: one that is built in, or NAME.toml in `folder`. Raises ConfigError."""
    return _load(name, folder, seen=())


def parse(data: bytes, file: str, base: Profile) -> Profile:
    """What the bytes of `file` make of `base`. Raises ConfigError with one line per problem; never another error."""
    try:
        document = tomllib.loads(data.removeprefix(b"\xef\xbb\xbf").decode())
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: not valid TOML: {str(error)[:120]}") from None
    values: dict[str, Any] = {}
    problems = []
    for key, value in document.items():
        if key == "extends":
            continue
        if key not in _KINDS:
            near = difflib.get_close_matches(key, _KINDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: extends, {', '.join(_KINDS)}"
            problems.append(f"{key}: unknown key; {hint}")
            continue
        try:
            values[key] = _KINDS[key].read(value)
        except ValueError:
            problems.append(f"{key} = {_shown(value)!r}: wanted {_KINDS[key].wanted}")
    made = replace(base, **values)
    problems += contradictions(made)
    if problems:
        raise ConfigError("\n".join(f"{file}: {problem}" for problem in problems))
    return made


def contradictions(profile: Profile) -> list[str]:
    """What does not fit together in a profile."""
    if profile.hugepages is not None and profile.hugepages_consumer is None:
        return ["hugepages: wanted hugepages_consumer beside it; pages that nobody uses are lost to everybody"]
    return []


def _load(name: str, folder: Path, seen: tuple[str, ...]) -> Profile:
    if not _NAME.fullmatch(name) or name == AUTO:
        raise ConfigError(f"profile {name[:60]!r}: wanted a name of lower-case letters, digits, '.', '_' and '-'")
    if name in seen or len(seen) >= _MOST_EXTENDS:
        raise ConfigError(f"profile {name}: extends itself ({' -> '.join((*seen, name))}); wanted an end")
    data, file = _read(name, folder)
    base = _extended(data)
    start = _load(base, folder, (*seen, name)) if base is not None else Profile(name)
    return parse(data, file, replace(start, name=name, summary=""))


def _read(name: str, folder: Path) -> tuple[bytes, str]:
    if name in BUILT_IN:
        return resources.files(__package__).joinpath(f"profiles/{name}.toml").read_bytes(), f"profile {name}"
    file = folder / f"{name}.toml"
    try:
        # A pipe or a device would keep everybody waiting who wants a plan.
        if not stat.S_ISREG(file.stat().st_mode):
            raise ConfigError(f"{file}: is no regular file; wanted a readable TOML file")
        untrusted = trust.fault(file)
        if untrusted is not None:
            raise ConfigError(untrusted)
        return file.read_bytes(), str(file)
    except FileNotFoundError:
        known = ", ".join((AUTO, *BUILT_IN))
        raise ConfigError(f"profile {name}: no such file as {file}; built in are {known}") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}; wanted a readable TOML file") from None


def _extended(data: bytes) -> str | None:
    """The name after `extends`; faults of the file are told by `parse`, once."""
    try:
        name = tomllib.loads(data.removeprefix(b"\xef\xbb\xbf").decode()).get("extends")
    except (UnicodeDecodeError, ValueError, RecursionError):
        return None
    return None if name is None else _shown(name)


def _shown(value: object) -> str:
    """The beginning of a value; Python refuses to spell numbers of thousands of digits."""
    try:
        return str(value)[:_SHOWN_CHARACTERS]
    except ValueError:
        return "a number of thousands of digits"
