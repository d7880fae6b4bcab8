"""TOML file -> frozen values. Every complaint names file, key, value seen and value wanted; all are made at once.

Keys carry their unit. A file that does not exist is an error when it was named, and means the defaults when it is
only looked for. Nothing here acts on a setting.
"""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from clockgate.pem import PemFiles

from clockgated import trust
from clockgated.config_values import (
    Choice,
    FolderPath,
    Kind,
    Member,
    Number,
    OptionalPath,
    OptionalTcpAddress,
    SocketPath,
    Switch,
    TcpAddress,
    Text,
    Texts,
    Whole,
    fits_in_64_bits,
    shown,
)
from clockgated.errors import ConfigError
from clockgated.manage.planned import Folders
from clockgated.manage.settings import (
    MAX_DRIFT_PPM,
    MAX_DRIFT_RANGE_PPM,
    ManageSettings,
    Mode,
    NtpSettings,
    PtpSettings,
)
from clockgated.manage.settings import problems as manage_problems
from clockgated.manage.table import read_settings

DEFAULT_FILE = Path("/etc/clockgate/clockgated.toml")
METRICS_PORT = 9775
_METRICS_ADDRESS = TcpAddress("127.0.0.1", METRICS_PORT)
PTP_ANSWER_S = 0.5
"""How long ptp4l may take to answer in each cycle, beside chronyc's own time."""


@dataclass(frozen=True)
class ClockConfig:
    """Who steers the clock, and how it is judged.

    `mode` and `take_over` are those of clock management, `node_count` the size of the cluster, None when nobody states
    it. `source` belongs to observing: "auto" is chrony when its socket exists at start, else the kernel.
    """

    mode: Annotated[Mode, Member(Mode)] = Mode.AUTO
    take_over: Annotated[bool, Switch()] = False
    node_count: Annotated[int | None, Whole(1, 1_000_000)] = None
    source: Annotated[str, Choice(("auto", "chrony", "kernel", "recorded"))] = "auto"
    max_bound_ms: Annotated[float, Number(0.001, 60_000)] = 50.0
    reading_ttl_s: Annotated[float, Number(0.1, 3600)] = 5.0
    max_drift_ppm: Annotated[float, Number(*MAX_DRIFT_RANGE_PPM)] = MAX_DRIFT_PPM
    holdover_horizon_s: Annotated[float, Number(0, 1_000_000)] = 1000.0
    poll_interval_s: Annotated[float, Number(0.05, 60)] = 1.0
    sync_cycles: Annotated[int, Whole(1, 1000)] = 3


@dataclass(frozen=True)
class ChronyConfig:
    """How a chronyd that is only observed is asked: its command socket, and the drift that it assumes by itself.

    The chronyc program and its time limit hold for the chronyd of clock management too.
    """

    socket: Annotated[Path, SocketPath()] = Path("/run/chrony/chronyd.sock")
    chronyc: Annotated[str, Text("the name or path of the chronyc program")] = "chronyc"
    # At most a second: a stop waits for the measurement in flight and is over within two.
    timeout_s: Annotated[float, Number(0.05, 1)] = 0.8
    maxclockerror_ppm: Annotated[float, Number(0, 1000)] = 1.0


@dataclass(frozen=True)
class RecordedConfig:
    """Where recorded evidence is read from, for `source = "recorded"`."""

    file: Annotated[Path | None, OptionalPath()] = None


@dataclass(frozen=True)
class ApiConfig:
    """Where the API is served, and how many streams at once.

    `tcp` adds what only reads for other machines, with mutual TLS from the three files, or without any on a loopback
    address. `tls_clients` are the names that a client's certificate may be for; none: every certificate of the CA.
    """

    socket: Annotated[Path, SocketPath()] = Path("/run/clockgate/clockgate.sock")
    admin_socket: Annotated[Path, SocketPath()] = Path("/run/clockgate/admin/admin.sock")
    max_streams: Annotated[int, Whole(1, 256)] = 64
    tcp: Annotated[TcpAddress | None, OptionalTcpAddress()] = None
    tls_certificate: Annotated[Path | None, OptionalPath()] = None
    tls_key: Annotated[Path | None, OptionalPath()] = None
    tls_client_ca: Annotated[Path | None, OptionalPath()] = None
    tls_clients: Annotated[tuple[str, ...], Texts("a list of names in the certificates of clients")] = ()

    @property
    def tls(self) -> PemFiles | None:
        """The files of TLS, once all three are named."""
        if self.tls_certificate is None or self.tls_key is None or self.tls_client_ca is None:
            return None
        return PemFiles(self.tls_certificate, self.tls_key, self.tls_client_ca)


@dataclass(frozen=True)
class LeasesConfig:
    """How many no-step leases there may be, all together and for one job, and how long a silent or broken one counts.

    A lease without a Check for `idle_s` ends; after root broke one, its job gets no other for `refuse_broken_s`.
    """

    max_leases: Annotated[int, Whole(1, 1000)] = 64
    max_per_job: Annotated[int, Whole(1, 1000)] = 16
    idle_s: Annotated[float, Number(1, 1_000_000)] = 600.0
    refuse_broken_s: Annotated[float, Number(0, 1_000_000)] = 600.0


@dataclass(frozen=True)
class FoldersConfig:
    """Where what is generated lives (`run`, emptied by a reboot) and what outlives a boot (`state`)."""

    run: Annotated[str, Text("an absolute path")] = Folders().run
    state: Annotated[str, Text("an absolute path")] = Folders().state


@dataclass(frozen=True)
class TuningConfig:
    """What is planned for network and host. Planning changes nothing; only an operator applies.

    `rtt_ms` is the round-trip time to the job's peers where it is not to be measured from `peers` (host names or
    addresses, asked by ICMP echo). Site profiles are NAME.toml in `profile_folder`.

    What may cut the node off is undone after `confirm_s` unless everything that answered before answers again: the
    default gateways, `peers` and `probe_hosts` (an address by ICMP echo, address:port by a TCP connection). What was
    applied is compared every `drift_poll_s`; knobs in `reassert` (as `tune plan` names them, "*" for all) are set again
    at most `reassert_per_hour` times, all others are only told about.
    """

    profile: Annotated[str, Text("auto, none, tcp, roce, ib, wan, or the name of a file in profile_folder")] = "auto"
    profile_folder: Annotated[Path, FolderPath()] = Path("/etc/clockgate/profiles")
    rtt_ms: Annotated[float | None, Number(0.001, 10_000)] = None
    peers: Annotated[tuple[str, ...], Texts("a list of host names or addresses")] = ()
    probe_hosts: Annotated[tuple[str, ...], Texts("a list of addresses, or of address:port")] = ()
    confirm_s: Annotated[float, Number(6, 600)] = 60.0
    drift_poll_s: Annotated[float, Number(1, 3600)] = 60.0
    reassert: Annotated[tuple[str, ...], Texts('a list of knobs as `tune plan` names them, or "*"')] = ()
    reassert_per_hour: Annotated[int, Whole(0, 60)] = 3


@dataclass(frozen=True)
class NodeConfig:
    """How the machine is looked at, and from where on what is seen counts as a finding.

    `gpus` opens NVIDIA's library. `folders` are watched for room beside the daemon's own. Findings about a subject that
    fits a pattern of `ignored` ("eth3", "mlx5_1/*") are left out. Those that rest on a counter stay for
    `finding_hold_s` after its last rise.
    """

    look_interval_s: Annotated[float, Number(1, 3600)] = 10.0
    gpus: Annotated[bool, Switch()] = True
    folders: Annotated[tuple[str, ...], Texts("a list of folders")] = ()
    ignored: Annotated[tuple[str, ...], Texts("a list of subjects of findings, * for any characters")] = ()
    finding_hold_s: Annotated[float, Number(1, 1_000_000)] = 600.0
    memory_low_percent: Annotated[float, Number(0, 100)] = 3.0
    memory_pressure_percent: Annotated[float, Number(0, 100)] = 10.0
    io_pressure_percent: Annotated[float, Number(0, 100)] = 50.0
    cpu_pressure_percent: Annotated[float, Number(0, 100)] = 80.0
    disk_low_percent: Annotated[float, Number(0, 100)] = 5.0
    temperature_margin_celsius: Annotated[float, Number(0, 50)] = 3.0
    link_drops_per_s: Annotated[float, Number(0, 1_000_000_000)] = 100.0
    gpu_memory_high_percent: Annotated[float, Number(0, 100)] = 90.0
    gpu_idle_percent: Annotated[float, Number(0, 100)] = 30.0


@dataclass(frozen=True)
class MetricsConfig:
    """Where metrics are served for Prometheus; None: nowhere. They tell names and addresses of this node's sources and
    devices, without asking who reads: an address that is not loopback is refused unless `open_to_network`.
    """

    address: Annotated[TcpAddress | None, OptionalTcpAddress(METRICS_PORT)] = _METRICS_ADDRESS
    open_to_network: Annotated[bool, Switch()] = False


@dataclass(frozen=True)
class Config:
    """Everything the daemon is told."""

    clock: ClockConfig = field(default_factory=ClockConfig)
    ntp: NtpSettings = field(default_factory=NtpSettings)
    ptp: PtpSettings = field(default_factory=PtpSettings)
    chrony: ChronyConfig = field(default_factory=ChronyConfig)
    recorded: RecordedConfig = field(default_factory=RecordedConfig)
    folders: FoldersConfig = field(default_factory=FoldersConfig)
    api: ApiConfig = field(default_factory=ApiConfig)
    leases: LeasesConfig = field(default_factory=LeasesConfig)
    tuning: TuningConfig = field(default_factory=TuningConfig)
    node: NodeConfig = field(default_factory=NodeConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)

    @property
    def managed(self) -> ManageSettings:
        """The part that clock management works from."""
        clock = self.clock
        return ManageSettings(clock.mode, clock.take_over, clock.max_drift_ppm, self.ntp, self.ptp)

    @property
    def places(self) -> Folders:
        """The folders as clock management takes them."""
        return Folders(self.folders.run, self.folders.state)


_SECTIONS: dict[str, type[Any]] = {
    "clock": ClockConfig,
    "chrony": ChronyConfig,
    "recorded": RecordedConfig,
    "folders": FoldersConfig,
    "api": ApiConfig,
    "leases": LeasesConfig,
    "tuning": TuningConfig,
    "node": NodeConfig,
    "metrics": MetricsConfig,
}
# Read by clock management itself: their values are lists and tables.
_MANAGED: dict[str, type[Any]] = {"ntp": NtpSettings, "ptp": PtpSettings}
_KEYS: dict[str, list[str]] = {name: [f.name for f in fields(cls)] for name, cls in (_SECTIONS | _MANAGED).items()}


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
    fault = trust.fault(file)
    if fault is not None:
        raise ConfigError(fault)
    return parse(data, str(file))


def parse(data: bytes, file: str) -> Config:
    """Turn the bytes of `file` into a Config. Raises ConfigError with one line per problem; never another error."""
    try:
        # Some editors begin a file with a byte order mark, which TOML does not know.
        text = data.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}: line {line}: byte 0x{data[error.start]:02x} is not UTF-8; wanted TOML") from None
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: not valid TOML: {error}") from None
    except ValueError as error:  # an integer with thousands of digits
        raise ConfigError(f"{file}: not valid TOML: {str(error).partition(';')[0]}") from None
    if not fits_in_64_bits(document):
        raise ConfigError(f"{file}: not valid TOML: a whole number beyond 64 bits")
    config, problems = _read_document(document)
    if problems:
        raise ConfigError("\n".join(f"{file}: {problem}" for problem in problems))
    return config


def _read_document(document: Mapping[str, object]) -> tuple[Config, list[str]]:
    problems = [_unknown_section(name) for name in document if name not in _KEYS]
    sections: dict[str, Any] = {}
    for name, cls in _SECTIONS.items():
        table = document.get(name, {})
        if isinstance(table, dict):
            sections[name] = _read_section(name, cls, table, problems)
        else:
            problems.append(_no_section(name, table))
            sections[name] = cls()
    tables = {name: document[name] for name in _MANAGED if name in document}
    problems += [_no_section(name, value) for name, value in tables.items() if not isinstance(value, dict)]
    managed, complaints = read_settings({name: value for name, value in tables.items() if isinstance(value, dict)})
    problems += map(_with_section, complaints)
    config = Config(**sections, ntp=managed.ntp, ptp=managed.ptp)
    # A key that was refused keeps its default here: rules between keys would then complain about the wrong thing.
    return config, problems or _contradictions(config)


def _read_section(section: str, cls: type[Any], table: Mapping[str, object], problems: list[str]) -> Any:
    hints = get_type_hints(cls, include_extras=True)
    kinds: dict[str, Kind] = {name: hint.__metadata__[0] for name, hint in hints.items()}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in kinds:
            problems.append(f"[{section}] {key}: unknown key{_suggestion(section, key)}")
            continue
        try:
            values[key] = kinds[key].read(value)
        except ValueError:
            problems.append(f"[{section}] {key} = {shown(value)}: wanted {kinds[key].wanted}")
    return cls(**values)


def _contradictions(config: Config) -> list[str]:
    problems = [_with_section(fault) for fault in manage_problems(config.managed)]
    clock, chrony, api, leases = config.clock, config.chrony, config.api, config.leases
    may_ask_ptp = clock.mode not in (Mode.OBSERVE, Mode.NTP)
    slowest_cycle_s = clock.poll_interval_s + chrony.timeout_s + (PTP_ANSWER_S if may_ask_ptp else 0)
    if clock.reading_ttl_s <= slowest_cycle_s:
        ptp = f" and {PTP_ANSWER_S:g} for ptp4l's answer" if may_ask_ptp else ""
        problems.append(
            f"[clock] reading_ttl_s = {clock.reading_ttl_s:g}: wanted more than {slowest_cycle_s:g}, the sum of "
            f"[clock] poll_interval_s and [chrony] timeout_s{ptp}; else readings expire between two cycles"
        )
    if clock.source != "auto" and clock.mode is not Mode.OBSERVE:
        problems.append(
            f'[clock] source = "{clock.source}": wanted mode = "observe" beside it; in mode "{clock.mode}" '
            "the clock is measured through the daemons that steer it"
        )
    problems += [f"[folders] {fault}" for fault in config.places.problems()]
    if clock.source == "recorded" and config.recorded.file is None:
        problems.append('[recorded] file = "": wanted the path of a recording, because [clock] source is "recorded"')
    problems += [f"[api] {fault}" for fault in _api_problems(api)]
    metrics = config.metrics
    if metrics.address is not None and not metrics.address.is_loopback and not metrics.open_to_network:
        problems.append(
            f'[metrics] address = "{metrics.address}": wanted an address of 127.0.0.0/8 or ::1, or '
            "open_to_network = true beside it: anybody who reaches that address reads the metrics"
        )
    if leases.max_per_job > leases.max_leases:
        problems.append(
            f"[leases] max_per_job = {leases.max_per_job}: wanted at most max_leases, which is {leases.max_leases}"
        )
    return problems


def _api_problems(api: ApiConfig) -> list[str]:
    problems = []
    if api.socket == api.admin_socket:
        problems.append(f'admin_socket = "{api.admin_socket}": wanted another path than [api] socket')
    files = {"tls_certificate": api.tls_certificate, "tls_key": api.tls_key, "tls_client_ca": api.tls_client_ca}
    missing = [key for key, path in files.items() if path is None]
    if api.tcp is None:
        return problems
    if missing and (len(missing) < len(files) or not api.tcp.is_loopback):
        problems.append(
            f'tcp = "{api.tcp}": wanted {" and ".join(missing)} beside it: other machines are served with TLS alone, '
            "to clients with a certificate; or listen on 127.0.0.1 without any"
        )
    if missing and api.tls_clients:
        problems.append("tls_clients: wanted tls_client_ca beside it; without TLS nobody shows a name")
    return problems


def _no_section(name: str, value: object) -> str:
    return f"{name} = {shown(value)}: wanted a section [{name}]"


def _unknown_section(name: str) -> str:
    owners = [section for section, keys in _KEYS.items() if name in keys]
    if owners:
        return f"{name}: outside of any section; wanted below [{'] or ['.join(owners)}]"
    near = difflib.get_close_matches(name, _KEYS, n=1)
    return f"[{name}]: unknown section; " + (f"did you mean [{near[0]}]?" if near else f"known: {', '.join(_KEYS)}")


def _with_section(complaint: str) -> str:
    """A complaint of clock management, which names its keys with dots, in the form of all others."""
    section, dot, rest = complaint.partition(".")
    return f"[{section}] {rest}" if dot and section in _MANAGED else f"[clock] {complaint}"


def _suggestion(section: str, key: str) -> str:
    near = difflib.get_close_matches(key, _KEYS[section], n=1)
    if near:
        return f"; did you mean {near[0]}?"
    owners = [name for name, known in _KEYS.items() if key in known]
    if owners:
        return f"; it belongs to [{'] or ['.join(owners)}]"
    return f"; known: {', '.join(_KEYS[section])}"
