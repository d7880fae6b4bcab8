"""Network interfaces apart from their queues. Flow control and what drivers choose by themselves is only watched."""

import ipaddress
from collections import defaultdict
from collections.abc import Iterable

from clockgated.tuning.model import Area, Input, Why
from clockgated.tuning.rules.base import Outcome, Rule, Situation, Stance, set_link, tell

_OFFLOADS = ("rx-gro", "tx-tcp-segmentation", "tx-generic-segmentation")
_TUNNEL_COST_V4, _TUNNEL_COST_V6 = 60, 80


def _coalescing(situation: Situation) -> Iterable[Outcome]:
    for link in situation.tuned_links():
        found = link.coalesce
        if (
            found is not None
            and found.adaptive_rx is False
            and found.rx_usecs == 0
            and (link.speed_mbps or 0) >= 100_000
        ):
            yield tell(
                "INTERRUPT_STORM",
                f"{link.name} coalesce",
                "an interrupt for every packet at 100 Gb/s or more",
                Input("rx_usecs", 0, "us"),
                next_step=f"`ethtool -C {link.name} adaptive-rx on`",
            )


def _stamping(situation: Situation) -> Iterable[Outcome]:
    for link in situation.facts.links:
        if link.stamp_config is not None and link.stamp_config.is_on:
            yield tell(
                "STAMPING_FROZEN",
                f"{link.name} hwtstamp",
                "hardware time stamps are in use: read before and after every change here, restored if it moved",
                Input("tx_type", link.stamp_config.tx_type),
                Input("rx_filter", link.stamp_config.rx_filter),
            )


def _compression(situation: Situation) -> Iterable[Outcome]:
    for link in situation.facts.links:
        if link.link_id.driver == "mlx5_core" and link.stamp_config is not None and link.stamp_config.is_on:
            yield tell(
                "CQE_COMPRESSION",
                f"{link.name} rx_cqe_compress",
                "with a PTP filter older drivers switch CQE compression off: a lower rate is theirs, not the fabric's",
                Input("kernel", situation.facts.host.kernel),
            )


def _offloads(situation: Situation) -> Iterable[Outcome]:
    for link in situation.tuned_links():
        # Virtual links have some of them off by default.
        if link.features is None or not link.is_hardware:
            continue
        off = [name for name in _OFFLOADS if name in link.features.hardware and name not in link.features.active]
        if off:
            yield tell(
                "OFFLOAD_OFF",
                f"{link.name} features",
                f"{', '.join(off)} could be on",
                next_step=f"`ethtool -k {link.name}`, and ask who switched it off",
            )


def _large_receive(situation: Situation) -> Iterable[Outcome]:
    forwards = situation.facts.sysctl("net.ipv4.ip_forward") == "1"
    for link in situation.facts.links:
        if link.features is not None and "rx-lro" in link.features.active and (forwards or link.master is not None):
            yield tell(
                "LRO_WHILE_FORWARDING",
                f"{link.name} features.rx-lro",
                "LRO breaks packets that are forwarded or bridged",
                next_step=f"`ethtool -K {link.name} lro off`; it is never changed here",
            )


def _pause(situation: Situation) -> Iterable[Outcome]:
    for link in situation.facts.links:
        grown = situation.growth(f"{link.name}.rx_pause_frames")
        if grown is not None and grown.count:
            yield tell(
                "PAUSED_BY_PEER",
                f"{link.name} pause",
                f"the other side stopped this link {grown.count} times in {grown.over_s:.0f} s; no drop counter tells",
                Input("rx_pause_frames", grown.count, "frames"),
                Input("over", grown.over_s, "s"),
                next_step="find the congested port of the fabric; flow control is never changed here",
                evidence=situation.evidence(f"{link.name}.rx_pause_frames"),
            )


def _lossless(situation: Situation) -> Iterable[Outcome]:
    layers = {port.link_layer for port in situation.facts.host.rdma_ports}
    if "Ethernet" not in layers and (layers or not situation.profile.rdma):
        return
    for link in situation.facts.links:
        if link.pause is not None and (link.pause.rx or link.pause.tx) and link.is_hardware:
            yield tell(
                "PAUSE_BESIDE_PFC",
                f"{link.name} pause",
                "global pause is on; it and priority flow control exclude each other",
                next_step=f"agree one lossless priority with the switches, then look at `mlnx_qos -i {link.name}`",
            )


def _mtu(situation: Situation) -> Iterable[Outcome]:
    wanted = situation.profile.mtu_bytes
    for link in situation.tuned_links():
        # The ports of a bond or bridge follow it.
        if wanted is not None and link.mtu not in (None, wanted) and link.master is None:
            why = Why(
                "the MTU that the profile says all peers and the path were agreed to carry",
                "what the profile says",
                (Input("agreed", wanted, "bytes"),),
            )
            yield set_link(situation, link, Area.MTU, ("mtu", str(link.mtu), str(wanted)), why, resets_link=False)
    for tunnel in situation.facts.links:
        below = [link.mtu for link in situation.facts.links if link.is_up and not link.is_tunnel and link.mtu]
        if tunnel.kind == "wireguard" and tunnel.mtu and below and tunnel.mtu > max(below) - _TUNNEL_COST_V4:
            yield tell(
                "TUNNEL_TOO_WIDE",
                f"{tunnel.name} mtu",
                f"packets of {tunnel.mtu} bytes do not fit through any link once wrapped",
                Input("mtu", tunnel.mtu, "bytes"),
                Input("widest_link", max(below), "bytes"),
                next_step=f"`ip link set {tunnel.name} mtu {max(below) - _TUNNEL_COST_V6}`, on both ends",
            )


def _same_subnet(situation: Situation) -> Iterable[Outcome]:
    by_network: dict[str, set[str]] = defaultdict(set)
    for link in situation.facts.links:
        if link.is_up and link.master is None:
            for text in link.addresses:
                address = ipaddress.ip_interface(text)
                if not address.ip.is_link_local and address.network.num_addresses > 1:
                    by_network[str(address.network)].add(link.name)
    for network, names in sorted(by_network.items()):
        if len(names) > 1:
            yield tell(
                "ONE_SUBNET_TWICE",
                " ".join(sorted(names)),
                f"all are in {network}: the order of routes decides, and traffic collapses to one of them",
                next_step="give each interface a subnet of its own",
            )


def _fec(situation: Situation) -> Iterable[Outcome]:
    for link in situation.facts.links:
        grown = situation.growth(f"{link.name}.fec_uncorrectable")
        if grown is not None and grown.count:
            yield tell(
                "FEC_UNCORRECTABLE",
                f"{link.name} fec",
                f"{grown.count} blocks could not be corrected in {grown.over_s:.0f} s: cable or optics are failing",
                Input("modes", " ".join(link.fec.modes) if link.fec else ""),
                next_step="clean or replace the cable or the optics",
            )


def _eee(situation: Situation) -> Iterable[Outcome]:
    for link in situation.tuned_links():
        stamps = link.stamp_config is not None and link.stamp_config.is_on
        if situation.profile.eee_off and link.eee_enabled and stamps:
            why = Why(
                "waking from the low-power state delays packets by microseconds on a port that carries time",
                "off while hardware time stamps are in use",
            )
            yield set_link(situation, link, Area.EEE, ("enabled", "on", "off"), why, resets_link=True)


TABLE: tuple[Rule, ...] = (
    Rule(
        "coalescing",
        Stance.REPORT,
        "adaptive moderation is left on; hardware time stamps do not suffer from it",
        _coalescing,
    ),
    Rule("hwtstamp", Stance.REPORT, "shared by every program: frozen, and restored when a change moved it", _stamping),
    Rule(
        "rx CQE compression",
        Stance.REPORT,
        "depends on PTP in ways that differ between driver generations",
        _compression,
    ),
    Rule("GRO, TSO, GSO", Stance.REPORT, "on everywhere; somebody had a reason to switch them off", _offloads),
    Rule("LRO", Stance.NEVER, "breaks forwarding and bridges; left as the driver has it", _large_receive),
    Rule("pause", Stance.NEVER, "blocks the whole fabric behind one port; its frames are counted", _pause),
    Rule(
        "PFC, DCQCN, ECN", Stance.REPORT, "host and switches have to agree; switches are not configured here", _lossless
    ),
    Rule("MTU", Stance.SET, "never raised by one node alone: only to the value that a profile says was agreed", _mtu),
    Rule("one subnet on two links", Stance.REPORT, "the order of routes decides which one is used", _same_subnet),
    Rule("FEC", Stance.REPORT, "uncorrectable blocks mean failing optics", _fec),
    Rule("EEE", Stance.SET, "off on ports that carry time; resets the link", _eee),
)
