"""The counters that justify a change, by names that stay: "tcp.RetransSegs", "eth0.rx_missed_errors".

Read from /proc and /sys alone, so that a plan and a later check read the same. They count up from boot, or from when
the interface came up; in a network namespace most of them are its own, softnet's are the node's.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from clockgated.tuning.model import Counter
from clockgated.tuning.roots import Roots, names_in, number_of, raw_text_of

_LINK_STATISTICS = ("rx_missed_errors", "rx_dropped", "rx_fifo_errors", "tx_dropped", "rx_errors")
_TCP_STATISTICS = (
    "RetransSegs", "OutSegs", "PruneCalled", "RcvCollapsed", "TCPRcvQDrop", "TCPTimeouts", "ListenOverflows",
    "ListenDrops", "TCPZeroWindowDrop", "InCEPkts", "TCPBacklogDrop",
)  # fmt: skip


def link_counters(name: str, sys: Path) -> tuple[Counter, ...]:
    """The counters of one interface that tell about lost packets."""
    folder = sys / "class/net" / name / "statistics"
    values = ((kind, number_of(folder / kind)) for kind in _LINK_STATISTICS)
    return tuple(Counter(f"{name}.{kind}", value) for kind, value in values if value is not None)


def node_counters(roots: Roots) -> tuple[Counter, ...]:
    """The counters of the network stack."""
    proc = roots.proc
    found = parse_softnet(raw_text_of(proc / "net/softnet_stat") or "")
    for file in ("net/snmp", "net/netstat"):
        table = parse_table(raw_text_of(proc / file) or "")
        found |= {f"tcp.{name}": table[name] for name in _TCP_STATISTICS if name in table}
    return tuple(Counter(name, value) for name, value in sorted(found.items()))


def all_counters(roots: Roots) -> dict[str, int]:
    """Everything that a plan may rest on, by name."""
    links = [one for name in names_in(roots.sys / "class/net") for one in link_counters(name, roots.sys)]
    return {one.name: one.value for one in (*node_counters(roots), *links)}


def read_counters(names: Iterable[str], roots: Roots) -> tuple[Counter, ...]:
    """The counters of those names now, in that order; one that is gone is left out."""
    found = all_counters(roots)
    return tuple(Counter(name, found[name]) for name in names if name in found)


def parse_softnet(text: str) -> dict[str, int]:
    """/proc/net/softnet_stat: packets dropped for a full backlog and rounds that ended early, over all CPUs."""
    dropped = squeezed = 0
    rows = [row for row in map(_hexadecimal, text.splitlines()) if len(row) >= 3]
    for row in rows:
        dropped, squeezed = dropped + row[1], squeezed + row[2]
    return {"softnet.dropped": dropped, "softnet.squeezed": squeezed} if rows else {}


def parse_table(text: str) -> Mapping[str, int]:
    """/proc/net/snmp and /proc/net/netstat: pairs of lines, names and then values, each led by the protocol."""
    found: dict[str, int] = {}
    lines = [line.split() for line in text.splitlines()]
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        # "Tcp:" and "TcpExt:" and "IpExt:"; the names that are used are unlike in all of them.
        if names[:1] == values[:1] and names[:1] in (["Tcp:"], ["TcpExt:"], ["IpExt:"]):
            for name, value in zip(names[1:], values[1:], strict=False):
                if re.fullmatch(r"-?[0-9]{1,20}", value):
                    found[name] = int(value)
    return found


def _hexadecimal(line: str) -> list[int]:
    try:
        return [int(word, 16) for word in line.split()]
    except ValueError:
        return []
