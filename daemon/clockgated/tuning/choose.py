"""Which profile "auto" stands for on this node. Pure."""

from clockgated.tuning.facts import Facts

_FAR_US = 5_000
"""A round trip that long leaves the site."""


def choose(facts: Facts) -> tuple[str, str]:
    """The name of a built-in profile and why, in one clause: the fabric that carries data decides."""
    active = [port for port in facts.host.rdma_ports if port.state == "ACTIVE"]
    for layer, name in (("InfiniBand", "ib"), ("Ethernet", "roce")):
        port = next((one for one in active if one.link_layer == layer), None)
        if port is not None:
            return name, f"{port.device} port {port.port} is active with link layer {layer}"
    if not any(link.is_up and (link.is_hardware or link.is_tunnel) for link in facts.links):
        return "none", "no hardware link and no tunnel is up"
    if facts.path is not None and facts.path.rtt_us >= _FAR_US:
        return "wan", f"no RDMA port is active, and peers are {facts.path.rtt_us / 1000:g} ms away"
    return "tcp", "no RDMA port is active"
