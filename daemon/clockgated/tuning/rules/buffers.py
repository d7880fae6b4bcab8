"""Socket buffers: sized from the measured path. Of the three values of a triple only the last is raised."""

from collections.abc import Iterable
from functools import partial

from clockgated.tuning.model import BufferBound, Input, Refusal, RefusalCode, Risk, Why
from clockgated.tuning.rules.base import Outcome, Rule, Situation, Stance, raise_sysctl, set_sysctl, spoiled, tell
from clockgated.tuning.values import MIB, buffer_size, flow_bps, numbers, promises_gain, window_bytes

_BUFFERS = {"net.ipv4.tcp_rmem": "receive", "net.ipv4.tcp_wmem": "send"}
_RAM_SHARE = 64
_MBPS = 1_000_000
_LOSING = ("tcp.RetransSegs", "tcp.OutSegs")
_PRESSED = ("tcp.PruneCalled", "tcp.TCPRcvQDrop")


def path_rates(situation: Situation) -> dict[str, int]:
    """Rates that data may travel at, bits per second: what the profile says of the path, else what each link tells."""
    told = situation.profile.path_mbps
    if told is not None:
        return {"the path": told * _MBPS}
    return {link.name: link.speed_mbps * _MBPS for link in situation.facts.links if link.is_up and link.speed_mbps}


def buffer_bounds(situation: Situation) -> tuple[BufferBound, ...]:
    """For each rate that is known: what one connection can reach now, and what larger buffers could add."""
    path = situation.facts.path
    triples = [numbers(situation.facts.sysctl(key) or "") for key in _BUFFERS]
    if path is None or any(triple is None or len(triple) != 3 for triple in triples):
        return ()
    window = window_bytes(*(triple[2] for triple in triples if triple is not None))
    return tuple(_bound(name, bps, path.rtt_us, window) for name, bps in path_rates(situation).items())


def _bound(name: str, link_bps: int, rtt_us: int, window: int) -> BufferBound:
    reached = flow_bps(window, rtt_us, link_bps)
    gain = link_bps / max(1, reached)
    path = f"{link_bps / 1e9:g} Gb/s at {rtt_us / 1000:g} ms"
    if promises_gain(gain):
        reaches = f"one connection reaches {reached / 1e9:.3g} Gb/s of {path}"
        sentence = f"{reaches}; larger buffers bring at most {gain:.3g} times that"
    else:
        sentence = (
            f"a window of {window / MIB:.3g} MiB already fills {path}: no gain is to be expected from larger buffers"
        )
    return BufferBound(name, link_bps, rtt_us, window, reached, gain, sentence)


def _buffers(key: str, situation: Situation) -> Iterable[Outcome]:
    facts, profile = situation.facts, situation.profile
    if not profile.socket_buffers or key not in facts.sysctls:
        return
    triple = numbers(facts.sysctls[key].value)
    if triple is None or len(triple) != 3:
        yield spoiled(situation, key, "three whole numbers")
        return
    rates = path_rates(situation)
    if facts.path is None or not rates:
        lacking = "the round-trip time to the job's peers" if facts.path is None else "the rate of any link"
        step = (
            "name peers in [tuning] or give --rtt-ms"
            if facts.path is None
            else "give path_mbps in a profile of your own: docs/tuning.md"
        )
        yield Refusal(
            RefusalCode.UNKNOWN_INPUT,
            key,
            Why(f"{lacking} is not known, and is never guessed"),
            step,
            found=facts.sysctls[key].value,
        )
        return
    link, link_bps = max(rates.items(), key=lambda pair: pair[1])
    least, start, current = triple
    memory = numbers(facts.sysctl("net.ipv4.tcp_mem") or "")
    limit = profile.buffer_limit_mib * MIB
    if facts.host.ram_bytes is not None:
        limit = min(limit, facts.host.ram_bytes // _RAM_SHARE)
    size = buffer_size(
        link_bps=link_bps,
        rtt_us=facts.path.rtt_us,
        current=current,
        limit=limit,
        flows=profile.flows,
        tcp_memory_bytes=memory[2] * facts.host.page_bytes if memory and len(memory) == 3 else None,
    )
    if size.wanted == current:
        return
    sentence = f"one connection needs {size.need / MIB:.3g} MiB of {_BUFFERS[key]} buffer to fill {link}"
    if size.limited_by:
        sentence += f"; held down by {size.limited_by}"
    why = Why(
        sentence,
        "power of two >= 2 * link_bps / 8 * rtt, never below what is found",
        (
            Input("link", link),
            Input("link_bps", link_bps, "bit/s"),
            Input("rtt", facts.path.rtt_us, "us"),
            Input("rtt_source", facts.path.source),
            Input("need", size.need, "bytes"),
            Input("limit", limit, "bytes"),
            Input("flows", profile.flows),
        ),
    )
    yield from set_sysctl(
        situation, key, f"{least} {start} {size.wanted}", why, evidence=situation.evidence(*_LOSING, *_PRESSED)
    )


def _setsockopt_limit(key: str, situation: Situation) -> Iterable[Outcome]:
    asked = situation.profile.setsockopt_mib
    if asked is None:
        return
    why = Why(
        f"a program asks for {asked} MiB with setsockopt",
        "what the profile's setsockopt_mib says",
        (Input("setsockopt_mib", asked, "MiB"),),
    )
    yield from raise_sysctl(situation, key, asked * MIB, why, risk=Risk.SOCKETS)


def _tcp_mem(situation: Situation) -> Iterable[Outcome]:
    memory, used = numbers(situation.facts.sysctl("net.ipv4.tcp_mem") or ""), situation.facts.host.tcp_pages_in_use
    if memory and len(memory) == 3 and used is not None and used > memory[1]:
        yield tell(
            "TCP_MEMORY_PRESSURE",
            "net.ipv4.tcp_mem",
            "TCP uses more memory than its pressure mark: windows shrink",
            Input("used", used, "pages"),
            Input("pressure", memory[1], "pages"),
            next_step="use fewer or smaller connections; `cat /proc/net/sockstat` shows the use",
        )


TABLE: tuple[Rule, ...] = (
    Rule(
        "net.ipv4.tcp_rmem",
        Stance.SET,
        "receive buffers grow up to the third value; it has to cover the path",
        partial(_buffers, "net.ipv4.tcp_rmem"),
    ),
    Rule(
        "net.ipv4.tcp_wmem",
        Stance.SET,
        "send buffers grow up to the third value; it has to cover the path",
        partial(_buffers, "net.ipv4.tcp_wmem"),
    ),
    Rule(
        "net.core.rmem_max",
        Stance.SET,
        "bounds setsockopt and UDP only, never automatic TCP buffers: raised for a named need",
        partial(_setsockopt_limit, "net.core.rmem_max"),
    ),
    Rule("net.core.wmem_max", Stance.SET, "as net.core.rmem_max", partial(_setsockopt_limit, "net.core.wmem_max")),
    Rule("net.ipv4.tcp_mem", Stance.NEVER, "a wrong value stalls the whole node; only pressure is reported", _tcp_mem),
)
