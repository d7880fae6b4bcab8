"""The choice of mode, with its reasons. Pure.

`auto` takes PTP where hardware proved itself, or where the cluster is larger than NTP is meant for; NTP elsewhere. A
mode that was asked for by name is taken or refused, never replaced by another that steers.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from clockgated.manage.facts import Facts, Tool, spell_version
from clockgated.manage.options import CHRONY, LINUXPTP, NEWEST, OLDEST, is_supported, legal
from clockgated.manage.ports import Ports, resolve_ports
from clockgated.manage.settings import MAX_SMALL_CLUSTER, ManageSettings, Mode, Role

_HIGH_DOMAIN = 128


class PlanCode(StrEnum):
    """One cause of a plan being what it is."""

    ASKED_FOR = "ASKED_FOR"
    PTP_PROVEN = "PTP_PROVEN"
    PTP_NOT_PROVEN = "PTP_NOT_PROVEN"
    CLUSTER_SIZE = "CLUSTER_SIZE"
    NTP_AS_FALLBACK = "NTP_AS_FALLBACK"
    NO_NTP_SOURCE = "NO_NTP_SOURCE"
    NO_PTP_PORT = "NO_PTP_PORT"
    TOOL_MISSING = "TOOL_MISSING"
    TOOL_TOO_OLD = "TOOL_TOO_OLD"
    OPTION_UNKNOWN = "OPTION_UNKNOWN"
    OTHER_TIME_DAEMON = "OTHER_TIME_DAEMON"
    NOTHING_TO_RUN = "NOTHING_TO_RUN"
    NOT_ROOT = "NOT_ROOT"


@dataclass(frozen=True)
class PlanReason:
    """One cause, for machines (`code`) and for people (`detail`)."""

    code: PlanCode
    detail: str


@dataclass(frozen=True)
class Choice:
    """A mode that can be carried out (never AUTO), its PTP ports where it has any, and why."""

    mode: Mode
    reasons: tuple[PlanReason, ...]
    ports: Ports = field(default_factory=Ports)
    warnings: tuple[str, ...] = ()


def choose_mode(settings: ManageSettings, facts: Facts) -> Choice:
    """The mode for this host. OBSERVE, with the next step in its reasons, when what was asked for cannot run."""
    asked = settings.mode
    reason = PlanReason(PlanCode.ASKED_FOR, f'mode "{asked}" is set in the configuration')
    if asked is Mode.OBSERVE:
        return Choice(Mode.OBSERVE, (reason,))
    if not facts.is_root:
        detail = f'mode "{asked}" manages time daemons, which takes root; the clock is only observed'
        return Choice(Mode.OBSERVE, (PlanReason(PlanCode.NOT_ROOT, f"{detail}: run clockgated as root"),))
    if asked is Mode.AUTO:
        return _automatic(settings, facts)
    ports = resolve_ports(settings.ptp, facts) if asked in (Mode.PTP, Mode.PTP_NTP) else Ports()
    obstacles: list[PlanReason] = []
    if asked in (Mode.NTP, Mode.PTP_NTP):
        obstacles += ntp_obstacles(settings, facts, needs_source=asked is Mode.NTP)
    if asked in (Mode.PTP, Mode.PTP_NTP):
        obstacles += ptp_obstacles(settings, facts, ports)
    if obstacles:
        return Choice(Mode.OBSERVE, (reason, *obstacles), warnings=ports.warnings)
    return Choice(asked, (reason,), ports, (*ports.warnings, *_newer_tools(asked, facts)))


def _automatic(settings: ManageSettings, facts: Facts) -> Choice:
    ports = resolve_ports(settings.ptp, facts)
    wish = _wish_for_ptp(settings, facts, ports)
    no_ptp = ptp_obstacles(settings, facts, ports)
    no_ntp = ntp_obstacles(settings, facts, needs_source=True)
    if wish.code is not PlanCode.PTP_NOT_PROVEN and not no_ptp:
        if not no_ntp:
            fallback = PlanReason(
                PlanCode.NTP_AS_FALLBACK,
                "NTP sources are set and chronyd is installed: it steers, and keeps them for a loss",
            )
            return _chosen(Mode.PTP_NTP, (wish, fallback), ports, facts)
        return _chosen(Mode.PTP, (wish, *no_ntp), ports, facts)
    if not no_ntp:
        return _chosen(Mode.NTP, (wish, *_unless_unwanted(wish, no_ptp)), Ports(), facts)
    nothing = PlanReason(
        PlanCode.NOTHING_TO_RUN,
        "neither NTP nor PTP can run here, so the clock is only observed: name servers in ntp.servers, or interfaces "
        "in ptp.interfaces",
    )
    return Choice(Mode.OBSERVE, (wish, *_unless_unwanted(wish, no_ptp), *no_ntp, nothing))


def _wish_for_ptp(settings: ManageSettings, facts: Facts, ports: Ports) -> PlanReason:
    """Whether PTP would be chosen if it can run, and why; the code PTP_NOT_PROVEN means no."""
    if settings.ptp.role is Role.GRANDMASTER:
        return PlanReason(PlanCode.ASKED_FOR, 'ptp.role "grandmaster" is set in the configuration, which asks for PTP')
    devices = ", ".join(f"{port.device.name} ({port.phc})" for port in ports.ports)
    if ports.is_proven:
        return PlanReason(
            PlanCode.PTP_PROVEN,
            f"the hardware clock of {devices} ticks and a transmit timestamp arrived: PTP is possible",
        )
    count = facts.node_count
    if count is not None and count > MAX_SMALL_CLUSTER:
        return PlanReason(
            PlanCode.CLUSTER_SIZE, f"the cluster has {count} nodes; above {MAX_SMALL_CLUSTER} PTP is preferred to NTP"
        )
    size = "of unstated size" if count is None else f"of {count} nodes (up to {MAX_SMALL_CLUSTER} NTP is enough)"
    return PlanReason(PlanCode.PTP_NOT_PROVEN, f"no hardware clock is proven, in a cluster {size}: NTP is preferred")


def _unless_unwanted(wish: PlanReason, obstacles: tuple[PlanReason, ...]) -> tuple[PlanReason, ...]:
    """Obstacles to PTP matter to the reader only where PTP was wished for."""
    return () if wish.code is PlanCode.PTP_NOT_PROVEN else obstacles


def _chosen(mode: Mode, reasons: tuple[PlanReason, ...], ports: Ports, facts: Facts) -> Choice:
    return Choice(mode, reasons, ports, (*ports.warnings, *_newer_tools(mode, facts)))


def ntp_obstacles(settings: ManageSettings, facts: Facts, needs_source: bool) -> tuple[PlanReason, ...]:
    """Why chronyd cannot run here; empty when it can."""
    found = _tool_obstacles("chronyd", CHRONY, facts.chronyd)
    ntp = settings.ntp
    wants_nts = [*(server.nts for server in ntp.servers), *(pool.nts for pool in ntp.pools)]
    has_source = not all(wants_nts) or (bool(wants_nts) and _has_nts(facts))
    if needs_source and not has_source and ntp.local is None:
        what = "need NTS, which the installed chronyd lacks" if wants_nts else "are empty"
        found += (
            PlanReason(PlanCode.NO_NTP_SOURCE, f"ntp.servers and ntp.pools {what}: name the servers of this cluster"),
        )
    return found


def ptp_obstacles(settings: ManageSettings, facts: Facts, ports: Ports) -> tuple[PlanReason, ...]:
    """Why ptp4l, and phc2sys where hardware clocks are used, cannot run here; empty when they can."""
    found = _tool_obstacles("ptp4l", LINUXPTP, facts.ptp4l)
    if ports.refusal is not None:
        found += (PlanReason(PlanCode.NO_PTP_PORT, ports.refusal),)
    if ports.hardware:
        found += _tool_obstacles("phc2sys", LINUXPTP, facts.phc2sys)
    domain = settings.ptp.domain
    if (
        facts.ptp4l is not None
        and domain >= _HIGH_DOMAIN
        and not legal(LINUXPTP, facts.ptp4l.version, f"domainNumber={_HIGH_DOMAIN}")
    ):
        have = spell_version(facts.ptp4l.version)
        detail = f"ptp.domain is {domain}; linuxptp {have} takes 0 to 127, 4.0 and newer take more"
        found += (PlanReason(PlanCode.OPTION_UNKNOWN, detail),)
    return found


def _has_nts(facts: Facts) -> bool:
    return facts.chronyd is not None and legal(CHRONY, facts.chronyd.version, "server.nts", facts.chronyd.features)


def _tool_obstacles(program: str, suite: str, tool: Tool | None) -> tuple[PlanReason, ...]:
    if tool is None:
        return (PlanReason(PlanCode.TOOL_MISSING, f"{program} was not found: install the package {suite}"),)
    if not is_supported(suite, tool.version):
        have, want = spell_version(tool.version), spell_version(OLDEST[suite])
        return (PlanReason(PlanCode.TOOL_TOO_OLD, f"{program} is {have}; {want} or newer is needed"),)
    return ()


def _newer_tools(mode: Mode, facts: Facts) -> tuple[str, ...]:
    """A word about releases that no plan has been tried with."""
    wanted = {
        CHRONY: facts.chronyd if mode in (Mode.NTP, Mode.PTP_NTP) else None,
        LINUXPTP: facts.ptp4l if mode in (Mode.PTP, Mode.PTP_NTP) else None,
    }
    return tuple(
        f"{suite} {spell_version(tool.version)} is newer than {spell_version(NEWEST[suite])}, the newest release that "
        "plans were tried with"
        for suite, tool in wanted.items()
        if tool is not None and tool.version[:2] > NEWEST[suite]
    )
