"""What a support bundle is filled with: the daemon's answers, its files, other programs' words, facts of the node."""

import http.client
import json
import platform
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import grpc
from clockgate.v1 import node_pb2, node_pb2_grpc

from clockgated import __version__
from clockgated.config_values import OptionalTcpAddress
from clockgated.ctl import address, ask, doctor, doctor_command, epochs, leases, node, status, tune, tune_changes
from clockgated.ctl.bundle import Collector, NothingToCollectError
from clockgated.manage.hostfiles import text_of
from clockgated.manage.probe import find_program, find_tool

_METRICS_PORT = 9775
_METRICS_ADDRESS = f"127.0.0.1:{_METRICS_PORT}"
_MOST_OF_A_FILE = 512 * 1024
_MOST_FILES = 200
_SUFFIXES = (".conf", ".json", ".jsonl")
_UNITS = ("clockgated.service", "clockgate-*")
_JOURNAL_LINES = "3000"
_ASK_S = 4.0
_DISTRIBUTIONS = ("grpcio", "protobuf", "pyroute2", "systemd-python", "prometheus-client")
_KERNEL_FILES = (
    "/proc/version",
    "/proc/uptime",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/self/status",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/devices/system/clocksource/clocksource0/available_clocksource",
    "/etc/os-release",
    "/etc/adjtime",
)


def collectors(path: address.Address, admin: address.Address, config: Path) -> tuple[Collector, ...]:
    """Everything, in the order in which it is collected; entries of the daemon first, while it is still there."""

    @cache
    def looked() -> node.Node:
        return node.look(config)

    return (
        *_answers(path, admin),
        Collector("metrics.txt", lambda: _metrics(config)),
        Collector("doctor.json", lambda: _doctor(path, admin, looked()), deadline_s=40.0),
        Collector("config/clockgated.toml", lambda: _file(config)),
        Collector("config/plan.json", lambda: _plan(looked().config), deadline_s=40.0),
        Collector("files.txt", lambda: _files(config)),
        Collector("versions.txt", _versions, deadline_s=15.0),
        Collector("kernel.txt", _kernel),
        *_words_of_others(),
    )


def _answers(path: address.Address, admin: address.Address) -> Iterator[Collector]:
    def reading(channel: grpc.Channel) -> Any:
        answer, now_boot_ns = ask.newest_answer(channel, path)
        return status.as_json(answer.reading, now_boot_ns, answer.details)

    def journal(channel: grpc.Channel) -> Any:
        return epochs.as_json(ask.newest_epochs(channel, path))

    def open_leases(channel: grpc.Channel) -> Any:
        # Ages would need this node's clock of the daemon's boot; stamps are enough here.
        return leases.as_json(leases.read(channel), 0)

    def tuning(channel: grpc.Channel) -> Any:
        return tune_changes.verdicts_as_json(tune_changes.verify(channel))

    def plan(channel: grpc.Channel) -> Any:
        return tune.as_json(tune.read_plan(channel, None, None))

    def health(channel: grpc.Channel) -> Any:
        stub = node_pb2_grpc.NodeStub(channel)
        return tune.plain(stub.GetHealth(node_pb2.GetHealthRequest(), timeout=_ASK_S).health)

    def fabric(channel: grpc.Channel) -> Any:
        stub = node_pb2_grpc.NodeStub(channel)
        return tune.plain(stub.GetFabric(node_pb2.GetFabricRequest(), timeout=_ASK_S).fabric)

    answered: list[bool] = []

    def first() -> str:
        text = _called(path, reading)
        answered.append(True)
        return text

    def then(where: address.Address, call: Callable[[grpc.Channel], Any]) -> str:
        if not answered:
            raise NothingToCollectError("not asked for: the daemon gave no answer to the call before")
        return _called(where, call)

    yield Collector("status.json", first)
    yield Collector("epochs.json", lambda: then(path, journal))
    yield Collector("leases.json", lambda: then(admin, open_leases))
    yield Collector("health.json", lambda: then(path, health))
    yield Collector("fabric.json", lambda: then(path, fabric))
    yield Collector("tuning-verify.json", lambda: then(path, tuning), deadline_s=12.0)
    yield Collector("tuning-plan.json", lambda: then(path, plan), deadline_s=12.0)


def _called(where: address.Address, call: Callable[[grpc.Channel], Any]) -> str:
    with address.connect(where) as channel:
        try:
            return json.dumps(call(channel), indent=2)
        except grpc.RpcError as error:
            raise address.unreachable(where, error) from None


def metrics_url(config: Path) -> str:
    """Where the daemon serves its metrics. Raises NothingToCollectError when it is to serve none."""
    place = node.text_setting(config, "metrics", "address", _METRICS_ADDRESS)
    try:
        # Read as the daemon does: without a port it is the usual one.
        served = OptionalTcpAddress(_METRICS_PORT).read(place)
    except ValueError:
        raise NothingToCollectError(f'[metrics] address = "{place}": no address of a machine') from None
    if served is None:
        raise NothingToCollectError('[metrics] address is "": no metrics are served')
    return f"http://{served}/metrics"


def _metrics(config: Path) -> str:
    url = metrics_url(config)
    # Whatever proxy the environment names: this is a matter of this node.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=2.0) as answer:
            text: bytes = answer.read(_MOST_OF_A_FILE)
    except urllib.error.URLError as error:
        raise NothingToCollectError(f"{url}: {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise NothingToCollectError(f"{url}: {error}") from None
    return text.decode(errors="replace")


def _doctor(path: address.Address, admin: address.Address, looked: node.Node) -> str:
    answers = doctor_command.ask_daemon(path, admin)
    findings = doctor.examine(answers, looked)
    shown = doctor.as_json(findings, doctor_command.exit_code(answers, findings))
    return json.dumps(shown | {"node": asdict(looked)}, indent=2, default=str)


def _plan(config: node.ConfigSeen) -> str:
    if config.problems:
        raise NothingToCollectError("; ".join(config.problems))
    return config.plan


def _file(path: Path) -> str:
    """The end of a regular file. Pipes and devices would never end."""
    if not path.is_file():
        raise NothingToCollectError(f"{path}: {'not a regular file' if path.exists() else 'no such file'}")
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _MOST_OF_A_FILE))
        return file.read(_MOST_OF_A_FILE).decode(errors="replace")


def _files(config: Path) -> str:
    """Generated configurations, records and journals below the daemon's folders, and what systemd was given."""
    folders = node.folders_of(config)
    roots = (Path(folders.run), Path(folders.state), *Path("/run/systemd/system").glob("clockgate-*.d"))
    found = sorted(path for root in roots for path in root.rglob("*") if path.suffix in _SUFFIXES)
    if not found:
        raise NothingToCollectError(f"nothing below {' and '.join(map(str, roots))}, or not readable for this user")
    parts = []
    for path in found[:_MOST_FILES]:
        try:
            parts.append(f"==> {path} <==\n{_file(path)}")
        except (OSError, NothingToCollectError) as error:
            parts.append(f"==> {path} <==\nnot read: {error}")
    return "\n".join(parts)


def _versions() -> str:
    lines = [f"clockgate {__version__}", f"python {platform.python_version()} {sys.executable}"]
    for name in _DISTRIBUTIONS:
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{name} not installed")
    for program in ("chronyd", "ptp4l", "phc2sys"):
        lines.append(f"{program} {find_tool(program) or 'not installed'}")
    return "\n".join([*lines, " ".join(platform.uname())])


def _kernel() -> str:
    parts = [f"==> {name} <==\n{text_of(Path(name))}" for name in _KERNEL_FILES]
    return "\n".join([*parts, f"==> adjtimex <==\n{node.look_at_kernel()}"])


def _words_of_others() -> Iterator[Collector]:
    journal = [word for unit in _UNITS for word in ("--unit", unit)]
    named = {
        "journal.txt": (
            "journalctl",
            "--no-pager",
            "--output",
            "short-iso-precise",
            "--lines",
            _JOURNAL_LINES,
            *journal,
        ),
        "units.txt": ("systemctl", "--no-pager", "--full", "status", *_UNITS),
        "time-units.txt": (
            "systemctl",
            "--no-pager",
            "list-units",
            "--all",
            "*chrony*",
            "*ntp*",
            "*ptp*",
            "*timesync*",
        ),
        "chrony-tracking.txt": ("chronyc", "-n", "tracking"),
        "chrony-sources.txt": ("chronyc", "-n", "sources", "-v"),
        "links.txt": ("ip", "-details", "-statistics", "link"),
        "timedatectl.txt": ("timedatectl", "show"),
    }
    for name, command in named.items():
        yield Collector(name, lambda command=command: _said(*command))  # type: ignore[misc]


def _said(*command: str) -> str:
    return node.run_program(find_program(command[0]) or command[0], *command[1:], timeout_s=_ASK_S)
