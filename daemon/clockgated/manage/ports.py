"""Which interfaces run PTP, which device stamps their packets, and whether in hardware. Pure."""

from dataclasses import dataclass

from clockgated.manage.facts import Facts, Interface, find_interface
from clockgated.manage.settings import PtpSettings, Timestamping

# linuxptp looks through a VLAN to the bond below it from this release on.
_VLAN_OVER_BOND_SINCE = (4, 0)
_DEEPEST_STACK = 8


@dataclass(frozen=True)
class Port:
    """One PTP port: the interface that ptp4l opens and the device whose clock stamps its packets."""

    interface: str
    device: Interface

    @property
    def phc(self) -> str | None:
        """Path of the device's hardware clock."""
        return None if self.device.phc_index is None else f"/dev/ptp{self.device.phc_index}"


@dataclass(frozen=True)
class Ports:
    """The chosen ports, all stamped the same way; none, and a refusal, when PTP cannot run."""

    ports: tuple[Port, ...] = ()
    hardware: bool = False
    warnings: tuple[str, ...] = ()
    refusal: str | None = None

    @property
    def is_proven(self) -> bool:
        """Whether every port's hardware passed its trials."""
        return self.hardware and all(port.device.is_proven for port in self.ports)


def resolve_ports(ptp: PtpSettings, facts: Facts) -> Ports:
    """The PTP ports that the settings name, or the best interface of the host when they name none."""
    names = ptp.interfaces or _best_interface(facts)
    if not names:
        return Ports(refusal="no interface is up that can stamp packets: name one in ptp.interfaces")
    present = sorted(interface.name for interface in facts.interfaces)
    ports: list[Port] = []
    for name in names:
        if find_interface(facts.interfaces, name) is None:
            return Ports(refusal=f"ptp.interfaces names {name}, which this host lacks; present: {', '.join(present)}")
        device = stamping_device(facts, name)
        if device is None:
            return Ports(refusal=f"{name} has no active port: PTP needs one that carries its traffic")
        ports.append(Port(name, device))
    return _stamps(ptp, facts, tuple(ports))


def stamping_device(facts: Facts, name: str) -> Interface | None:
    """The physical device below a VLAN and a bond, which is where packets are stamped; None without an active port."""
    interface = find_interface(facts.interfaces, name)
    for _ in range(_DEEPEST_STACK):
        if interface is None:
            return None
        below = interface.active_port if interface.is_bond else interface.lower
        if below is None:
            return None if interface.is_bond else interface
        interface = find_interface(facts.interfaces, below)
    return None


def _best_interface(facts: Facts) -> tuple[str, ...]:
    """The proven, then fastest, then first interface that is up, physical (or a bond), and no part of another."""
    ranked: list[tuple[bool, int, str]] = []
    for interface in facts.interfaces:
        device = stamping_device(facts, interface.name)
        is_usable = interface.operstate == "up" and interface.master is None and interface.lower is None
        is_real = interface.driver is not None or interface.is_bond
        if device is None or not (is_usable and is_real and (device.is_proven or device.has_software_stamps)):
            continue
        ranked.append((not device.is_proven, -(device.speed_mbps or 0), interface.name))
    return (min(ranked)[2],) if ranked else ()


def _stamps(ptp: PtpSettings, facts: Facts, ports: tuple[Port, ...]) -> Ports:
    """Hardware only when each port can: one ptp4l stamps all of its ports the same way."""
    warnings: list[str] = []
    wanted = ptp.timestamping
    hardware = wanted is not Timestamping.SOFTWARE
    for port in ports:
        objection = _objection(wanted, facts, port) if hardware else None
        if objection is not None:
            hardware = False
            if wanted is Timestamping.HARDWARE:
                warnings.append(f"{objection}: software timestamps are used instead")
    if hardware:
        unproven = [port.device.name for port in ports if not port.device.is_proven]
        if unproven:
            warnings.append(
                f"hardware timestamps of {', '.join(unproven)} are used as asked, but no trial has proven that the "
                "clock ticks and that a transmit timestamp arrives"
            )
        return Ports(ports, True, tuple(warnings))
    for port in ports:
        if not port.device.has_software_stamps:
            return Ports(
                warnings=tuple(warnings),
                refusal=f"{port.device.name} can stamp packets neither in proven hardware nor in software",
            )
    return Ports(ports, False, tuple(warnings))


def _objection(wanted: Timestamping, facts: Facts, port: Port) -> str | None:
    """Why this port's hardware must not be used; with `auto`, also the mere lack of proof."""
    device = port.device
    if device.phc_index is None or not device.has_hardware_stamps:
        return f"{device.name} has no hardware timestamps"
    if device.phc_ticks is False:
        return f"the hardware clock /dev/ptp{device.phc_index} of {device.name} stands still"
    if device.tx_stamp_arrives is False:
        return f"no transmit timestamp arrived from {device.name}"
    if _is_vlan_over_bond(facts, port) and (facts.ptp4l is None or facts.ptp4l.version < _VLAN_OVER_BOND_SINCE):
        return f"{port.interface} is a VLAN over a bond, where ptp4l finds the hardware clock from linuxptp 4.0 on only"
    if wanted is Timestamping.AUTO and not device.is_proven:
        return f"the hardware timestamps of {device.name} are not proven"
    return None


def _is_vlan_over_bond(facts: Facts, port: Port) -> bool:
    top = find_interface(facts.interfaces, port.interface)
    below = find_interface(facts.interfaces, top.lower) if top is not None and top.lower is not None else None
    return below is not None and below.is_bond
