"""What is remembered from one look to the next: counters that rose, addresses that changed, known GPUs. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from clockgated.node.facts import Gid, NodeLook
from clockgated.units import NS_PER_S

RDMA_ERRORS = (
    "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors",
    "port_xmit_discards", "local_link_integrity_errors", "excessive_buffer_overrun_errors", "local_ack_timeout_err",
    "rx_icrc_encapsulated",
)  # fmt: skip
"""Counters of an RDMA port that stand still on a good link."""

_MOST_COUNTERS = 4096
"""Many times what a node has. Interfaces of containers come and go under ever new names."""
_LINK_ERRORS = ("rx_errors", "tx_errors")
_LINK_DROPS = ("rx_dropped", "rx_missed_errors", "tx_dropped")


@dataclass(frozen=True)
class Rise:
    """By how much a counter rose lately; CLOCK_BOOTTIME, ns, of the looks that saw it rise first and last."""

    amount: int
    first_boot_ns: int
    last_boot_ns: int


@dataclass(frozen=True)
class Watched:
    """A counter now. Slower than `least_per_s` it does not count as rising."""

    name: str
    value: int
    least_per_s: float = 0.0


@dataclass(frozen=True)
class History:
    """`rises` by the names of `watched`; `gids` by port, `gids_changed_boot_ns` when that table last changed.

    `gpus` are the UUIDs that were seen and how they were named; `active_ports` those that were ACTIVE once.
    """

    looked_boot_ns: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    rises: Mapping[str, Rise] = field(default_factory=dict)
    gids: Mapping[str, tuple[Gid, ...]] = field(default_factory=dict)
    gids_changed_boot_ns: Mapping[str, int] = field(default_factory=dict)
    gpus: Mapping[str, str] = field(default_factory=dict)
    active_ports: frozenset[str] = frozenset()


def remember(before: History, look: NodeLook, now_boot_ns: int, *, hold_ns: int, drops_per_s: float) -> History:
    """The history with `look` at `now_boot_ns`. A rise is forgotten `hold_ns` after it was last seen."""
    watched = tuple(watched_counters(look, drops_per_s))
    ports = look.fabric.rdma_ports if look.fabric else ()
    gids = {port.subject: port.gids for port in ports}
    moved = {name: now_boot_ns for name, table in gids.items() if before.gids.get(name, table) != table}
    known = {gpu.uuid: gpu.subject for gpu in (look.gpus.gpus if look.gpus else ()) if gpu.uuid}
    return History(
        looked_boot_ns=now_boot_ns,
        # A part that does not answer keeps its last values, so that no rise of that time is lost.
        counters=_newest(before.counters, watched),
        rises=_kept(before.rises, now_boot_ns - hold_ns) | _risen(before, watched, now_boot_ns, hold_ns),
        gids={**before.gids, **gids},
        gids_changed_boot_ns={
            **{name: at for name, at in before.gids_changed_boot_ns.items() if at > now_boot_ns - hold_ns},
            **moved,
        },
        gpus={**before.gpus, **known},
        active_ports=before.active_ports | {port.subject for port in ports if port.state == "ACTIVE"},
    )


def watched_counters(look: NodeLook, drops_per_s: float) -> Iterable[Watched]:
    """The counters whose rise means something."""
    if look.host:
        yield from _present("oom_kills", look.host.oom_kills)
        yield from _present("memory.corrected", look.host.memory_errors_corrected)
        yield from _present("memory.uncorrected", look.host.memory_errors_uncorrected)
    for link in look.fabric.links if look.fabric else ():
        yield from _present(f"{link.name}.carrier_losses", link.carrier_losses)
        for kind, names, least in (("errors", _LINK_ERRORS, 0.0), ("drops", _LINK_DROPS, drops_per_s)):
            values = [link.counters[name] for name in names if name in link.counters]
            if values:
                yield Watched(f"{link.name}.{kind}", sum(values), least)
    for port in look.fabric.rdma_ports if look.fabric else ():
        for name in RDMA_ERRORS:
            yield from _present(f"{port.subject}.{name}", port.counters.get(name))
    for gpu in look.gpus.gpus if look.gpus else ():
        yield from _present(f"{gpu.uuid}.uncorrected", gpu.ecc_uncorrected)


def _present(name: str, value: int | None) -> Iterable[Watched]:
    return () if value is None else (Watched(name, value),)


def _newest(before: Mapping[str, int], watched: Iterable[Watched]) -> dict[str, int]:
    """The counters, those that were seen last at the end; the oldest go when there are too many."""
    now = {one.name: one.value for one in watched}
    earlier = [(name, value) for name, value in before.items() if name not in now]
    return dict([*earlier, *now.items()][-_MOST_COUNTERS:])


def _kept(rises: Mapping[str, Rise], since_boot_ns: int) -> dict[str, Rise]:
    return {name: rise for name, rise in rises.items() if rise.last_boot_ns > since_boot_ns}


def _risen(before: History, watched: Iterable[Watched], now_boot_ns: int, hold_ns: int) -> dict[str, Rise]:
    if before.looked_boot_ns is None:
        return {}
    elapsed_s = max(1, now_boot_ns - before.looked_boot_ns) / NS_PER_S
    found = {}
    for one in watched:
        # Below the last value: the device came up again, and counts from zero.
        amount = one.value - before.counters.get(one.name, one.value)
        if amount > 0 and amount / elapsed_s >= one.least_per_s:
            earlier = before.rises.get(one.name)
            if earlier is None or earlier.last_boot_ns <= now_boot_ns - hold_ns:
                found[one.name] = Rise(amount, now_boot_ns, now_boot_ns)
            else:
                found[one.name] = Rise(earlier.amount + amount, earlier.first_boot_ns, now_boot_ns)
    return found
