"""Looks at what `launch_environment` decides by: cores, interfaces, the way to the other nodes. Sends nothing."""

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from clockgate_trainer.launch_environment import LaunchFacts

_SYS_INFINIBAND = Path("/sys/class/infiniband")
_ANY_PORT = 9


def look(*, ranks_here: int, nodes: int, endpoint_host: str, cuda: bool, environment: Mapping[str, str]) -> LaunchFacts:
    """The facts of this node. What cannot be read is taken as not there."""
    addresses = {
        name: frozenset(each.address.partition("%")[0] for each in found)
        for name, found in psutil.net_if_addrs().items()
    }
    up = tuple(name for name, state in psutil.net_if_stats().items() if state.isup)
    return LaunchFacts(
        cores=len(os.sched_getaffinity(0)),
        ranks_here=ranks_here,
        nodes=nodes,
        cuda=cuda,
        endpoint_host=endpoint_host,
        endpoint_interface=_interface_to(endpoint_host, addresses) if nodes > 1 else None,
        interfaces=tuple(sorted(up)),
        active_hcas=tuple(active_hcas(_SYS_INFINIBAND)),
        nccl_conf=tuple(_names_in_conf(environment)),
        environment=environment,
    )


def _interface_to(host: str, addresses: Mapping[str, frozenset[str]]) -> str | None:
    """The interface whose address the kernel would use towards `host`; None when it cannot say."""
    try:
        found = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return None
    for family, kind, protocol, _, target in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                # On a datagram socket this asks the routing table and sends nothing.
                probe.connect(target)
                own = str(probe.getsockname()[0])
        except OSError:
            continue
        if own.startswith("127.") or own == "::1":
            return "lo"
        for name, known in addresses.items():
            if own in known:
                return name
    return None


def active_hcas(root: Path) -> Iterator[str]:
    """Names of the InfiniBand devices below `root` that have an active port."""
    for state in sorted(root.glob("*/ports/*/state")):
        try:
            text = state.read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        if "ACTIVE" in text:
            yield state.parts[-4]


def _names_in_conf(environment: Mapping[str, str]) -> Iterator[str]:
    """Variables that NCCL reads from its own files."""
    for path in (Path("/etc/nccl.conf"), Path(environment.get("NCCL_CONF_FILE") or "~/.nccl.conf")):
        try:
            lines = path.expanduser().read_text(encoding="utf-8", errors="replace").splitlines()
        except (OSError, RuntimeError):  # the latter where nobody knows a home
            continue
        yield from (line.partition("=")[0].strip() for line in lines if "=" in line and not line.startswith("#"))
