"""Queues of interfaces: rings, channels, queueing disciplines, and which CPUs serve them."""

from collections.abc import Iterable

from clockgated.tuning.facts import Irq, Link
from clockgated.tuning.model import Area, Change, Input, Knob, Refusal, RefusalCode, Risk, Why
from clockgated.tuning.rules.base import Outcome, Rule, Situation, Stance, set_link, tell

_MOST_CHANNELS = 16
_LOSSES = ("rx_missed_errors", "rx_fifo_errors")
_DEFAULT_HANDLE = "0:0"
_FAIRNESS = "fq paces each connection, and keeps one from starving the others; pfifo_fast does neither"
_QUIET = frozenset({"config", "async", "control", "event"})


def _rings(situation: Situation) -> Iterable[Outcome]:
    for link in situation.tuned_links():
        names = [f"{link.name}.{kind}" for kind in _LOSSES]
        lost = [(name, grown) for name in names if (grown := situation.growth(name)) and grown.count]
        if not situation.profile.rings or not lost or link.rings is None:
            continue
        found, most = link.rings.rx, link.rings.rx_max
        if found is None or most is None or found >= most:
            continue
        name, grown = lost[0]
        why = Why(
            f"{grown.count} packets were lost in {grown.over_s:.0f} s because the ring was full",
            "twice what is found, at most the driver's limit",
            (Input(name, grown.count, "packets"), Input("over", grown.over_s, "s"), Input("limit", most, "entries")),
        )
        wanted = min(2 * found, most)
        yield set_link(
            situation,
            link,
            Area.RINGS,
            ("rx", str(found), str(wanted)),
            why,
            resets_link=True,
            evidence=situation.evidence(*names),
        )


def _channels(situation: Situation) -> Iterable[Outcome]:
    for link in situation.tuned_links():
        found, cpus = link.channels, len(situation.local_cpus(link))
        if not situation.profile.channels or found is None:
            continue
        counted = situation.evidence(f"{link.name}.rx_missed_errors", "softnet.squeezed")
        pairs = (
            ("combined", found.combined, found.combined_max),
            ("rx", found.rx, found.rx_max),
            ("tx", found.tx, found.tx_max),
        )
        for key, now, most in pairs:
            if now is None or not most:
                continue
            wanted = min(most, cpus, _MOST_CHANNELS)
            if now < wanted:
                why = Why(
                    f"{cpus - now} of {cpus} CPUs near {link.name} serve no queue of it",
                    "min(driver's limit, CPUs on its NUMA node, 16), only upwards",
                    (Input("limit", most), Input("local_cpus", cpus)),
                )
                yield set_link(
                    situation,
                    link,
                    Area.CHANNELS,
                    (key, str(now), str(wanted)),
                    why,
                    resets_link=True,
                    evidence=counted,
                )
            elif now > cpus:
                yield tell(
                    "MORE_QUEUES_THAN_CPUS",
                    f"{link.name} channels.{key}",
                    "queues beyond the CPUs on the link's NUMA node cross to another",
                    Input("queues", now),
                    Input("local_cpus", cpus),
                )


def data_irqs(situation: Situation, link: Link) -> list[Irq]:
    """The interrupts of the link's queues, by number: those of its configuration and events left out."""
    irqs = [irq for irq in situation.facts.irqs if irq.link == link.name]
    return sorted((irq for irq in irqs if irq.action.rpartition("-")[2] not in _QUIET), key=lambda irq: irq.number)


def _affinity(situation: Situation) -> Iterable[Outcome]:
    facts = situation.facts
    for link in situation.tuned_links():
        irqs, cpus = data_irqs(situation, link), situation.local_cpus(link)
        if not situation.profile.irq_affinity or len(link.queues) < 2 or len(cpus) < 2:
            continue
        if facts.owners.irqbalance_runs:
            yield Refusal(
                RefusalCode.CONFLICT,
                f"{link.name} irq",
                Why(f"irqbalance runs and would move the {len(irqs)} interrupts of {link.name} again"),
                "give irqbalance a policy script that answers ban=true for them (--policyscript)",
            )
            continue
        for place, irq in enumerate(irqs):
            wanted = str(cpus[place % len(cpus)])
            if irq.affinity is None or irq.affinity == wanted:
                continue
            why = Why(
                "one queue per CPU, on the CPUs near the interface",
                "CPU number (place of the queue) of the link's NUMA node",
                (Input("place", place), Input("local_cpus", len(cpus))),
            )
            yield Change(Knob(facts.netns, Area.IRQ, irq.action, link.link_id), irq.affinity, wanted, why, Risk.NODE)


def _steering(situation: Situation) -> Iterable[Outcome]:
    for link in situation.tuned_links():
        cpus = situation.local_cpus(link)
        if not situation.profile.receive_steering or len(link.queues) >= len(cpus):
            continue
        wanted = cpu_mask(cpus)
        for queue in link.queues:
            if queue.rps_cpus is not None and queue.rps_cpus.lstrip("0,") != wanted.lstrip("0,"):
                key = f"class/net/{link.name}/queues/{queue.name}/rps_cpus"
                why = Why(
                    f"{len(link.queues)} queues for {len(cpus)} CPUs near {link.name}",
                    "all CPUs of the link's NUMA node",
                    (Input("queues", len(link.queues)), Input("local_cpus", len(cpus))),
                )
                yield Change(
                    Knob(situation.facts.netns, Area.SYSFS, key, link.link_id), queue.rps_cpus, wanted, why, Risk.NODE
                )


def cpu_mask(cpus: Iterable[int]) -> str:
    """CPUs as the kernel writes a mask: hexadecimal, groups of 32 bits from the highest, joined by commas."""
    mask = sum(1 << cpu for cpu in set(cpus))
    groups: list[int] = []
    while mask or not groups:
        groups.append(mask & 0xFFFFFFFF)
        mask >>= 32
    return ",".join([f"{groups[-1]:x}", *(f"{group:08x}" for group in reversed(groups[:-1]))])


def _qdisc(situation: Situation) -> Iterable[Outcome]:
    for link in situation.tuned_links():
        root = next((one for one in link.qdiscs if one.parent == "root"), None)
        if not situation.profile.fair_queueing or root is None:
            continue
        leaves = [one for one in link.qdiscs if one is not root] if root.kind == "mq" else [root]
        if any(one.kind != "pfifo_fast" for one in leaves) or not leaves:
            continue
        if any(one.handle != _DEFAULT_HANDLE for one in (root, *leaves)):
            yield Refusal(
                RefusalCode.CONFLICT,
                f"{link.name} qdisc",
                Why("somebody set the queueing discipline by hand"),
                "ask who did; it is not replaced",
                found=root.kind,
                wanted="fq",
            )
            continue
        why = Why(_FAIRNESS, "fq where every queue has the kernel's own pfifo_fast", (Input("queues", len(leaves)),))
        counted = situation.evidence(f"{link.name}.tx_dropped")
        yield set_link(
            situation, link, Area.QDISC, ("root", "pfifo_fast", "fq"), why, resets_link=False, evidence=counted
        )


TABLE: tuple[Rule, ...] = (
    Rule(
        "rings",
        Stance.SET,
        "doubled only while the interface counts packets lost to a full ring; resets the link",
        _rings,
    ),
    Rule(
        "channels",
        Stance.SET,
        "one queue for each CPU on the link's NUMA node, at most 16, only upwards; resets the link",
        _channels,
    ),
    Rule("IRQ affinity", Stance.SET, "one queue per CPU near the link, unless irqbalance runs", _affinity),
    Rule(
        "RPS, XPS",
        Stance.SET,
        "RPS only where a profile asks and queues are fewer than local CPUs; XPS is left alone",
        _steering,
    ),
    Rule(
        "qdisc", Stance.SET, "fq in place of the kernel's own pfifo_fast; nothing that somebody set is replaced", _qdisc
    ),
)
