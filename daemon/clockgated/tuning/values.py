"""Arithmetic and checks of values. Pure. The kernel takes nonsense without a word, so it is checked here first."""

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass

INT_MAX = 2147483647
MIB = 1 << 20
_BOOKKEEPING = 2
"""About half of a socket buffer holds the kernel's own records, so twice the payload is needed."""
_MEMORY_SHARE = 4
"""Sockets may fill a quarter of what TCP may use at most."""
_NO_GAIN = 1.02
"""Below this factor a gain is not told from noise."""

TRIPLES = frozenset({"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"})
_RANGES = {
    "net.core.rmem_max": (2048, INT_MAX),
    "net.core.wmem_max": (4096, INT_MAX),
    "net.ipv4.tcp_mtu_probing": (0, 2),
    "net.ipv4.tcp_slow_start_after_idle": (0, 1),
    "net.ipv4.tcp_notsent_lowat": (1, 4294967295),
    "net.ipv4.tcp_no_metrics_save": (0, 1),
    "net.core.netdev_max_backlog": (1, 1 << 20),
    "net.core.netdev_budget": (1, 100_000),
    "net.core.netdev_budget_usecs": (1, 1_000_000),
    "net.core.somaxconn": (1, 65535),
    "net.ipv4.neigh.default.gc_thresh1": (0, INT_MAX),
    "net.ipv4.neigh.default.gc_thresh2": (0, INT_MAX),
    "net.ipv4.neigh.default.gc_thresh3": (0, INT_MAX),
    "kernel.numa_balancing": (0, 3),
    "vm.nr_hugepages": (0, 1 << 30),
}


@dataclass(frozen=True)
class BufferSize:
    """What the buffer rule makes of its inputs, bytes. `limited_by` names what kept it below the need; "" nothing."""

    need: int
    wanted: int
    limited_by: str = ""


def need_bytes(link_bps: int, rtt_us: int) -> int:
    """Twice the bandwidth-delay product: 2 x link_bps / 8 x RTT."""
    return -(-_BOOKKEEPING * link_bps * rtt_us // 8_000_000)


def round_up_to_power(number: int) -> int:
    """The smallest power of two that is at least `number`; 1 for anything below."""
    return 1 << max(0, number - 1).bit_length()


def buffer_size(
    *, link_bps: int, rtt_us: int, current: int, limit: int, flows: int, tcp_memory_bytes: int | None
) -> BufferSize:
    """The maximum for automatic buffers: the need as a power of two, at least `current`, at most what memory bears.

    `limit` caps a single buffer, `flows` x the result stays within a quarter of `tcp_memory_bytes` (None: unknown,
    not applied). Never below `current`, and never above 2^31 - 1 unless it is there already.
    """
    need = need_bytes(link_bps, rtt_us)
    wanted, limited_by = round_up_to_power(need), ""
    ceilings = [(limit, "the limit for one buffer"), (INT_MAX, "the kernel's largest value")]
    if tcp_memory_bytes is not None:
        share = tcp_memory_bytes // (_MEMORY_SHARE * max(1, flows))
        ceilings.append((1 << max(0, share.bit_length() - 1), f"a quarter of tcp_mem shared by {flows} connections"))
    for ceiling, name in ceilings:
        if wanted > ceiling:
            wanted, limited_by = ceiling, name
    return BufferSize(need, max(wanted, current), limited_by if max(wanted, current) < need else "")


def window_bytes(rmem_max: int, wmem_max: int) -> int:
    """The window that the third values of tcp_rmem and tcp_wmem allow one connection."""
    return min(rmem_max, wmem_max) // _BOOKKEEPING


def flow_bps(window: int, rtt_us: int, link_bps: int) -> int:
    """The rate of one connection with that window: a window per round trip, at most the link's rate."""
    return min(link_bps, window * 8_000_000 // max(1, rtt_us))


def promises_gain(gain: float) -> bool:
    """Whether a factor is more than noise."""
    return gain > _NO_GAIN


def numbers(value: str) -> tuple[int, ...] | None:
    """The whole numbers in `value`; None when a word is none."""
    words = value.split()
    # No kernel value has more digits, and Python refuses to read thousands of them.
    return tuple(map(int, words)) if all(re.fullmatch(r"-?[0-9]{1,20}", word) for word in words) else None


def value_problem(key: str, value: str, available: Collection[str] = ()) -> str | None:
    """What is wrong with setting the sysctl `key` to `value`; None when nothing is, or the key is not known here.

    `available` are the words that a key of choices may take here (congestion controls).
    """
    if key.endswith(".tcp_congestion_control"):
        return _choice_problem(value, available)
    if key in TRIPLES:
        return _triple_problem(value)
    if key == "net.ipv4.ip_local_port_range":
        ports = numbers(value)
        is_range = ports is not None and len(ports) == 2 and 1 <= ports[0] < ports[1] <= 65535
        return None if is_range else f"{value!r}: wanted two ports, the lower first, from 1 to 65535"
    if key in _RANGES:
        low, high = _RANGES[key]
        read = numbers(value)
        is_fit = read is not None and len(read) == 1 and low <= read[0] <= high
        return None if is_fit else f"{value!r}: wanted one whole number from {low} to {high}"
    return None


def _triple_problem(value: str) -> str | None:
    read = numbers(value)
    if read is None or len(read) != 3:
        return f"{value!r}: wanted three whole numbers (least, default, most bytes)"
    if not 1 <= read[0] <= read[1] <= read[2] <= INT_MAX:
        return f"{value!r}: wanted three numbers that do not fall, from 1 to {INT_MAX}"
    return None


def _choice_problem(value: str, available: Collection[str]) -> str | None:
    if value in available:
        return None
    near = difflib.get_close_matches(value, sorted(available), n=1, cutoff=0.3)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{value!r}: not available here ({', '.join(sorted(available)) or 'none known'}){hint}"
