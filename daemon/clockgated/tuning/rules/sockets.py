"""Sockets and TCP apart from buffers. Counters ask for what is node-wide; the rest is for the profile to say."""

from collections.abc import Iterable
from functools import partial

from clockgated.tuning.model import Input, Refusal, RefusalCode, Risk, Why
from clockgated.tuning.rules import buffers
from clockgated.tuning.rules.base import Outcome, Rule, Situation, Stance, number, raise_sysctl, set_sysctl, tell

_BACKLOG_LIMIT = 16384
_MANY_NEIGHBOURS = 800
_SQUEEZES_PER_CPU_AND_S = 1.0
_LARGE_WORLD = 2000


def _congestion(situation: Situation) -> Iterable[Outcome]:
    key, wanted = "net.ipv4.tcp_congestion_control", situation.profile.congestion_control
    available = (situation.facts.sysctl("net.ipv4.tcp_available_congestion_control") or "").split()
    found = situation.facts.sysctl(key)
    if wanted is None:
        if found == "dctcp":
            yield tell(
                "DCTCP_IN_USE",
                key,
                "dctcp starves beside cubic, and needs switches that mark ECN on the whole path",
                next_step="make sure that every host and switch takes part, or go back to cubic",
            )
        return
    if wanted in ("bbr", "cubic", "htcp", "dctcp") and wanted not in available:
        step = f"load its module: `modprobe tcp_{wanted}`"
        yield Refusal(
            RefusalCode.UNSUPPORTED,
            key,
            Why(f"{wanted} is not among {' '.join(available)}"),
            step,
            found=found,
            wanted=wanted,
        )
        return
    why = Why("loss on a long path says little about congestion; bbr follows delay and rate", "the profile's word")
    if wanted != "bbr":
        why = Why("the profile asks for it", "the profile's word")
    counted = situation.evidence("tcp.RetransSegs", "tcp.OutSegs", "tcp.InCEPkts")
    yield from set_sysctl(situation, key, wanted, why, available=available, evidence=counted)


def _mtu_probing(situation: Situation) -> Iterable[Outcome]:
    key, links = "net.ipv4.tcp_mtu_probing", [link for link in situation.facts.links if link.is_up]
    largest = max((link.mtu or 0 for link in links), default=0)
    tunnel = next((link.name for link in links if link.is_tunnel), None)
    if not situation.profile.mtu_probing or (largest <= 1500 and tunnel is None):
        return
    inputs = (Input("largest_mtu", largest, "bytes"), Input("tunnel", tunnel or "none"))
    why = Why(
        "jumbo frames or a tunnel on the path can swallow large packets; probing finds what passes",
        "1 if MTU > 1500 or a tunnel is up",
        inputs,
    )
    yield from raise_sysctl(situation, key, 1, why, risk=Risk.SOCKETS)


def _after_idle(situation: Situation) -> Iterable[Outcome]:
    if situation.profile.no_slow_start_after_idle:
        why = Why(
            "collectives pause between steps for longer than a retransmission time-out; the window should outlive that"
        )
        yield from set_sysctl(situation, "net.ipv4.tcp_slow_start_after_idle", "0", why, risk=Risk.NODE)


def _notsent(situation: Situation) -> Iterable[Outcome]:
    wanted = situation.profile.notsent_lowat_bytes
    if wanted is not None:
        why = Why(
            "control traffic should not wait behind unsent data",
            "what the profile says",
            (Input("notsent_lowat", wanted, "bytes"),),
        )
        yield from set_sysctl(situation, "net.ipv4.tcp_notsent_lowat", str(wanted), why, risk=Risk.NODE)


def _kept_on(key: str, reason: str, situation: Situation) -> Iterable[Outcome]:
    if situation.facts.sysctl(key) == "0":
        yield tell(
            "SWITCHED_OFF", key, reason, next_step=f"switch it on: `sysctl -w {key}=1`; it is never changed here"
        )


def _no_metrics(situation: Situation) -> Iterable[Outcome]:
    if situation.profile.no_metrics_save:
        why = Why("one bad connection over a shared path should not slow the next ones")
        yield from set_sysctl(situation, "net.ipv4.tcp_no_metrics_save", "1", why)


def _backlog(situation: Situation) -> Iterable[Outcome]:
    key, grown = "net.core.netdev_max_backlog", situation.growth("softnet.dropped")
    found = number(situation, key)
    if not situation.profile.backlog or grown is None or grown.count == 0 or found is None or found >= _BACKLOG_LIMIT:
        return
    why = Why(
        f"{grown.count} packets were dropped in {grown.over_s:.0f} s because a CPU's queue was full",
        "twice what is found, at most 16384",
        (Input("dropped", grown.count, "packets"), Input("over", grown.over_s, "s")),
    )
    yield from raise_sysctl(
        situation,
        key,
        min(2 * found, _BACKLOG_LIMIT),
        why,
        risk=Risk.NODE,
        evidence=situation.evidence("softnet.dropped"),
    )


def _budget(situation: Situation) -> Iterable[Outcome]:
    grown, cpus = situation.growth("softnet.squeezed"), situation.facts.host.cpus.count
    if not situation.profile.backlog or grown is None or grown.count <= _SQUEEZES_PER_CPU_AND_S * grown.over_s * cpus:
        return
    if "net.core.netdev_budget" not in situation.facts.sysctls:
        return
    why = Why(
        f"receiving ended {grown.count} times early in {grown.over_s:.0f} s with packets left",
        "600 packets and 8000 us when above 1/s/CPU",
        (Input("squeezed", grown.count), Input("over", grown.over_s, "s"), Input("cpus", cpus)),
    )
    for key, wanted in (("net.core.netdev_budget", 600), ("net.core.netdev_budget_usecs", 8000)):
        yield from raise_sysctl(
            situation, key, wanted, why, risk=Risk.NODE, evidence=situation.evidence("softnet.squeezed")
        )


def _busy(key: str, situation: Situation) -> Iterable[Outcome]:
    found = number(situation, key)
    if found:
        yield tell(
            "BUSY_POLLING",
            key,
            "the collectives' own threads spin already; polling in the kernel burns a second core",
            Input("found", found, "us"),
            next_step="keep it only for a latency experiment; it is never changed here",
        )


def _somaxconn(situation: Situation) -> Iterable[Outcome]:
    world = situation.profile.world_size
    if world is not None and world > _LARGE_WORLD:
        why = Why(
            f"{world} ranks may knock at this node at once",
            "at least the world size",
            (Input("world_size", world, "ranks"),),
        )
        yield from raise_sysctl(
            situation,
            "net.core.somaxconn",
            world,
            why,
            risk=Risk.SOCKETS,
            evidence=situation.evidence("tcp.ListenOverflows"),
        )


def _neighbours(situation: Situation) -> Iterable[Outcome]:
    seen = situation.facts.host.neighbours
    if not situation.profile.neighbour_table or seen is None or seen <= _MANY_NEIGHBOURS:
        return
    why = Why(
        f"{seen} neighbours come near the table's size of 1024",
        "4096, 8192, 16384 above 800 neighbours",
        (Input("neighbours", seen),),
    )
    for number_of_threshold, wanted in ((3, 16384), (2, 8192), (1, 4096)):
        yield from raise_sysctl(
            situation, f"net.ipv4.neigh.default.gc_thresh{number_of_threshold}", wanted, why, risk=Risk.NODE
        )


def _port_range(situation: Situation) -> Iterable[Outcome]:
    wanted = situation.profile.port_range
    if wanted is not None:
        found = situation.facts.sysctl("net.ipv4.ip_local_port_range") or "unknown"
        why = Why(
            "the firewall between nodes lets only these ports pass",
            "what the profile says",
            (Input("firewall", wanted), Input("found", found)),
        )
        yield from set_sysctl(situation, "net.ipv4.ip_local_port_range", " ".join(wanted.split()), why)


def _asked_for(situation: Situation) -> Iterable[Outcome]:
    available = (situation.facts.sysctl("net.ipv4.tcp_available_congestion_control") or "").split()
    for key, wanted in situation.profile.sysctl.items():
        if key in NEVER_SET:
            yield Refusal(
                RefusalCode.CONFLICT,
                key,
                Why(f"never set here: {NEVER_SET[key]}"),
                "use a file below /etc/sysctl.d",
                found=situation.facts.sysctl(key),
                wanted=wanted,
            )
        else:
            yield from set_sysctl(
                situation, key, wanted, Why("the site's profile asks for it"), risk=Risk.NODE, available=available
            )


_WHY_TIMESTAMPS = "without timestamps sequence numbers wrap unseen, at 100 Gb/s within 0.34 s"
_WHY_SACK = "without it one lost packet costs the whole window"

TABLE: tuple[Rule, ...] = (
    Rule(
        "net.ipv4.tcp_congestion_control",
        Stance.SET,
        "kept within a site; bbr between sites where loss says little",
        _congestion,
    ),
    Rule(
        "net.ipv4.tcp_mtu_probing",
        Stance.SET,
        "finds the size that passes where jumbo frames or tunnels swallow large packets",
        _mtu_probing,
    ),
    Rule("net.ipv4.tcp_slow_start_after_idle", Stance.SET, "collectives are bursts with pauses", _after_idle),
    Rule(
        "net.ipv4.tcp_notsent_lowat",
        Stance.SET,
        "optional: latency of control traffic against the peak of few connections",
        _notsent,
    ),
    Rule(
        "net.ipv4.tcp_timestamps",
        Stance.NEVER,
        _WHY_TIMESTAMPS,
        partial(_kept_on, "net.ipv4.tcp_timestamps", _WHY_TIMESTAMPS),
    ),
    Rule("net.ipv4.tcp_sack", Stance.NEVER, _WHY_SACK, partial(_kept_on, "net.ipv4.tcp_sack", _WHY_SACK)),
    Rule("net.ipv4.tcp_no_metrics_save", Stance.SET, "optional on a shared path between sites", _no_metrics),
    Rule("net.core.netdev_max_backlog", Stance.SET, "doubled only while softnet counts drops", _backlog),
    Rule(
        "net.core.netdev_budget",
        Stance.SET,
        "raised only while softnet counts early ends; with netdev_budget_usecs",
        _budget,
    ),
    Rule(
        "net.core.busy_poll",
        Stance.NEVER,
        "burns CPU beside threads that spin already",
        partial(_busy, "net.core.busy_poll"),
    ),
    Rule("net.core.busy_read", Stance.NEVER, "as net.core.busy_poll", partial(_busy, "net.core.busy_read")),
    Rule(
        "net.core.somaxconn",
        Stance.SET,
        "4096 is enough below 2000 ranks; a rendezvous node of more needs the world size",
        _somaxconn,
    ),
    Rule("net.ipv4.neigh.default.gc_thresh", Stance.SET, "all three, only above 800 neighbours", _neighbours),
    Rule("net.ipv4.ip_local_port_range", Stance.SET, "only where a firewall bounds the ports", _port_range),
    Rule("sysctl", Stance.SET, "further keys that a site's profile names", _asked_for),
)

NEVER_SET = {rule.name: rule.reason for rule in (*buffers.TABLE, *TABLE) if rule.stance is Stance.NEVER} | {
    "vm.zone_reclaim_mode": "reclaiming near memory costs data loaders their page cache",
}
"""Keys that even a profile cannot set, and why."""
