"""TOML file -> frozen values. Every complaint names file, key, value seen and value wanted; all are made at once.

Keys carry their unit. A file that does not exist is an error when it was named, and means the defaults when it is
only looked for. Nothing here acts on a setting.
"""

import difflib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Protocol, get_type_hints

from clockgated.errors import ConfigError

DEFAULT_FILE = Path("/etc/clockgate/clockgated.toml")
SOCKET_PATH_LIMIT_BYTES = 107  # sockaddr_un.sun_path is 108 bytes, one of them the final NUL

_SHOWN_CHARACTERS = 80


class _Kind(Protocol):
    """What a key may hold: `wanted` says it to a person, `read` returns the value or raises ValueError."""

    @property
    def wanted(self) -> str: ...

    def read(self, value: object) -> Any: ...


@dataclass(frozen=True)
class _Number:
    low: float
    high: float

    @property
    def wanted(self) -> str:
        return f"a number from {self.low:g} to {self.high:g}"

    def read(self, value: object) -> float:
        # bool is an int to Python and never a quantity to a person.
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError
        if not self.low <= value <= self.high:
            raise ValueError
        return float(value)


@dataclass(frozen=True)
class _Whole:
    low: int
    high: int

    @property
    def wanted(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def read(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            raise ValueError
        return value


@dataclass(frozen=True)
class _Choice:
    known: tuple[str, ...]

    @property
    def wanted(self) -> str:
        names = ", ".join(f'"{name}"' for name in self.known)
        return f"one of {names}" if len(self.known) > 1 else f"{names}, the only value known"

    def read(self, value: object) -> str:
        if not isinstance(value, str) or value not in self.known:
            raise ValueError
        return value


@dataclass(frozen=True)
class _Text:
    wanted: str

    def read(self, value: object) -> str:
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError
        return value


@dataclass(frozen=True)
class _OptionalPath:
    wanted: str = 'a path, or "" for none'

    def read(self, value: object) -> Path | None:
        if not isinstance(value, str) or "\0" in value:
            raise ValueError
        return Path(value) if value else None


@dataclass(frozen=True)
class _SocketPath:
    wanted: str = f"an absolute path of at most {SOCKET_PATH_LIMIT_BYTES} bytes"

    def read(self, value: object) -> Path:
        if not isinstance(value, str) or "\0" in value or not value.startswith("/") or value.endswith("/"):
            raise ValueError
        if len(value.encode(errors="surrogateescape")) > SOCKET_PATH_LIMIT_BYTES:
            raise ValueError
        return Path(value)


@dataclass(frozen=True)
class ClockConfig:
    """How the clock is judged. `source` "auto" is chrony when its socket exists at start, else the kernel."""

    mode: Annotated[str, _Choice(("observe",))] = "observe"
    source: Annotated[str, _Choice(("auto", "chrony", "kernel", "recorded"))] = "auto"
    max_bound_ms: Annotated[float, _Number(0.001, 60_000)] = 50.0
    reading_ttl_s: Annotated[float, _Number(0.1, 3600)] = 5.0
    max_drift_ppm: Annotated[float, _Number(0.001, 1000)] = 50.0
    holdover_horizon_s: Annotated[float, _Number(0, 1_000_000)] = 1000.0
    poll_interval_s: Annotated[float, _Number(0.05, 60)] = 1.0
    sync_cycles: Annotated[int, _Whole(1, 1000)] = 3


@dataclass(frozen=True)
class ChronyConfig:
    """How chronyd is asked: its command socket, the chronyc program, and the drift that chronyd itself assumes."""

    socket: Annotated[Path, _SocketPath()] = Path("/run/chrony/chronyd.sock")
    chronyc: Annotated[str, _Text("the name or path of the chronyc program")] = "chronyc"
    # At most a second: a stop waits for the measurement in flight and is over within two.
    timeout_s: Annotated[float, _Number(0.05, 1)] = 0.8
    maxclockerror_ppm: Annotated[float, _Number(0, 1000)] = 1.0


@dataclass(frozen=True)
class RecordedConfig:
    """Where recorded evidence is read from, for `source = "recorded"`."""

    file: Annotated[Path | None, _OptionalPath()] = None


@dataclass(frozen=True)
class ApiConfig:
    """Where the API is served, and how many streams at once."""

    socket: Annotated[Path, _SocketPath()] = Path("/run/clockgate/clockgate.sock")
    admin_socket: Annotated[Path, _SocketPath()] = Path("/run/clockgate/admin/admin.sock")
    max_streams: Annotated[int, _Whole(1, 1000)] = 16


@dataclass(frozen=True)
class Config:
    """Everything the daemon is told."""

    clock: ClockConfig = field(default_factory=ClockConfig)
    chrony: ChronyConfig = field(default_factory=ChronyConfig)
    recorded: RecordedConfig = field(default_factory=RecordedConfig)
    api: ApiConfig = field(default_factory=ApiConfig)


_SECTIONS: dict[str, type[Any]] = {
    "clock": ClockConfig,
    "chrony": ChronyConfig,
    "recorded": RecordedConfig,
    "api": ApiConfig,
}


def load(path: Path | None) -> Config:
    """Read the file at `path`, or for None the one at DEFAULT_FILE if there is one. Raises ConfigError."""
    file = path or DEFAULT_FILE
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        if path is None:
            return Config()
        raise ConfigError(f"{file}: no such file; create it, or leave out --config to run on the defaults") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}; wanted a readable TOML file") from None
    return parse(data, str(file))


def parse(data: bytes, file: str) -> Config:
    """Turn the bytes of `file` into a Config. Raises ConfigError with one line per problem; never another error."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}: line {line}: byte 0x{data[error.start]:02x} is not UTF-8; wanted TOML") from None
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: not valid TOML: {error}") from None
    except ValueError as error:  # an integer with thousands of digits
        raise ConfigError(f"{file}: not valid TOML: {str(error).partition(';')[0]}") from None
    config, problems = _read_document(document)
    if problems:
        raise ConfigError("\n".join(f"{file}: {problem}" for problem in problems))
    return config


def _read_document(document: Mapping[str, object]) -> tuple[Config, list[str]]:
    problems = [_unknown_section(name) for name in document if name not in _SECTIONS]
    sections: dict[str, Any] = {}
    for name, cls in _SECTIONS.items():
        table = document.get(name, {})
        if isinstance(table, dict):
            sections[name] = _read_section(name, cls, table, problems)
        else:
            problems.append(f"{name} = {_shown(table)}: wanted a section [{name}]")
            sections[name] = cls()
    config = Config(**sections)
    # A key that was refused keeps its default here: rules between keys would then complain about the wrong thing.
    return config, problems or _contradictions(config)


def _read_section(section: str, cls: type[Any], table: Mapping[str, object], problems: list[str]) -> Any:
    hints = get_type_hints(cls, include_extras=True)
    kinds: dict[str, _Kind] = {name: hint.__metadata__[0] for name, hint in hints.items()}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in kinds:
            problems.append(f"[{section}] {key}: unknown key{_suggestion(section, key)}")
            continue
        try:
            values[key] = kinds[key].read(value)
        except ValueError:
            problems.append(f"[{section}] {key} = {_shown(value)}: wanted {kinds[key].wanted}")
    return cls(**values)


def _contradictions(config: Config) -> list[str]:
    problems = []
    clock, chrony, api = config.clock, config.chrony, config.api
    slowest_cycle_s = clock.poll_interval_s + chrony.timeout_s
    if clock.reading_ttl_s <= slowest_cycle_s:
        problems.append(
            f"[clock] reading_ttl_s = {clock.reading_ttl_s:g}: wanted more than {slowest_cycle_s:g}, the sum of "
            "[clock] poll_interval_s and [chrony] timeout_s; else readings expire between two cycles"
        )
    if clock.source == "recorded" and config.recorded.file is None:
        problems.append('[recorded] file = "": wanted the path of a recording, because [clock] source is "recorded"')
    if api.socket == api.admin_socket:
        problems.append(f'[api] admin_socket = "{api.admin_socket}": wanted another path than [api] socket')
    return problems


def _unknown_section(name: str) -> str:
    owners = [section for section, cls in _SECTIONS.items() if name in {f.name for f in fields(cls)}]
    if owners:
        return f"{name}: outside of any section; wanted below [{'] or ['.join(owners)}]"
    near = difflib.get_close_matches(name, _SECTIONS, n=1)
    return f"[{name}]: unknown section; " + (f"did you mean [{near[0]}]?" if near else f"known: {', '.join(_SECTIONS)}")


def _suggestion(section: str, key: str) -> str:
    keys = {name: [f.name for f in fields(cls)] for name, cls in _SECTIONS.items()}
    near = difflib.get_close_matches(key, keys[section], n=1)
    if near:
        return f"; did you mean {near[0]}?"
    owners = [name for name, known in keys.items() if key in known]
    if owners:
        return f"; it belongs to [{'] or ['.join(owners)}]"
    return f"; known: {', '.join(keys[section])}"


def _shown(value: object) -> str:
    """The value much as the file has it, cut short."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, str):
        text = f'"{value}"'
    else:
        text = str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
