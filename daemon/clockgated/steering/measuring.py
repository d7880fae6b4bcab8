"""What is measured under a plan: the daemons that steer, or, where nothing of ours runs, whoever does."""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from clockgated.clock.model import Reason, SourceKind
from clockgated.config import PTP_ANSWER_S, Config
from clockgated.errors import ConfigError
from clockgated.manage.facts import Facts
from clockgated.manage.hostfiles import text_of
from clockgated.manage.planned import Plan, PlannedPtp
from clockgated.manage.probe import find_program
from clockgated.manage.rivals import CAP_SYS_TIME
from clockgated.manage.takeover import is_rival
from clockgated.sources.base import Source
from clockgated.sources.chronyc import ChronycSource
from clockgated.sources.kernel import KernelSource, read_look
from clockgated.sources.phc import Phc, PhcFailure
from clockgated.sources.pmc import Pmc, PmcSettings
from clockgated.sources.ptp import PtpProbes, PtpSettings, PtpSource
from clockgated.sources.ptp_feed import LogFeed
from clockgated.sources.recorded import RecordedSource
from clockgated.steering.joined import Annotated, FedChronyd, Selection, SteeredBy
from clockgated.steering.leap_table import LeapTable
from clockgated.steering.notices import plan_notices
from clockgated.steering.policies import bound_policy, ptp_policy
from clockgated.steering.prepare import Prepared
from clockgated.steering.signs import Listened, SignsOfLife
from clockgated.units import NS_PER_S, PPB_PER_PPM

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hooks:
    """Where sources meet the supervision.

    `reasons` are those of the moment, `pid_of` the process of a daemon's name, None while it does not run.
    """

    signs: SignsOfLife
    reasons: Callable[[], tuple[Reason, ...]]
    pid_of: Callable[[str], int | None]


@dataclass(frozen=True)
class Measuring:
    """A source with what belongs to it. `feeds` take the lines of the daemons that are their keys.

    `forget` has a chronyd of ours drop its samples; None where none is measured.
    """

    source: Source
    feeds: Mapping[str, LogFeed] = field(default_factory=dict)
    closers: tuple[Callable[[], None], ...] = ()
    forget: Callable[[], bool] | None = None

    def close(self) -> None:
        """End what the source started; only while nobody reads it."""
        for close in self.closers:
            close()


def open_measuring(settings: Config, prepared: Prepared, boot_id: str, hooks: Hooks) -> Measuring:
    """The source for what the plan runs, or for what runs beside it. ConfigError when a recording cannot be used."""
    plan, facts = prepared.plan, prepared.facts
    if plan.daemons:
        inner = _Opening(settings, plan, facts, boot_id, hooks).opened()
    else:
        inner = Measuring(observed_source(settings, facts, boot_id))
    notices = plan_notices(settings.clock.mode, plan, has_clock_right=facts.has_clock_right)
    source = Annotated(inner.source, lambda: replace(notices, always=(*notices.always, *hooks.reasons())))
    return replace(inner, source=source)


def observed_kind(settings: Config, facts: Facts, *, chrony_socket_exists: bool) -> SourceKind:
    """What to read where nothing of ours runs: the source that is named, or for "auto" the one that can be trusted.

    That is chrony where its socket exists; beside another time daemon, only if that is a chronyd, for a socket may be
    the remains of a chronyd that is gone. Else the kernel.
    """
    if settings.clock.source != "auto":
        return SourceKind[settings.clock.source.upper()]
    steering = {one.program for one in facts.time_daemons if is_rival(one)}
    is_chrony = chrony_socket_exists and (not steering or "chronyd" in steering)
    return SourceKind.CHRONY if is_chrony else SourceKind.KERNEL


def observed_source(settings: Config, facts: Facts, boot_id: str) -> Source:
    """The source to read where nothing of ours runs. Raises ConfigError when a recording cannot be used."""
    chrony = settings.chrony
    # os.path: a folder that may not be entered counts as one without a socket, where Path.exists raises.
    exists = os.path.exists(chrony.socket)  # noqa: PTH110
    kind = observed_kind(settings, facts, chrony_socket_exists=exists)
    _log.info('observing: source %s ([clock] source is "%s")', kind.name.lower(), settings.clock.source)
    if kind is SourceKind.KERNEL:
        return KernelSource()
    if kind is SourceKind.CHRONY:
        policy = bound_policy(settings)
        return ChronycSource(
            chrony.socket, policy, boot_id, timeout_s=chrony.timeout_s, program=_program(chrony.chronyc)
        )
    if settings.recorded.file is None:
        raise ConfigError('[recorded] file is not set: wanted the path of a recording, because source is "recorded"')
    return RecordedSource(settings.recorded.file)


class _Opening:
    """Opens the sources of one plan."""

    def __init__(self, settings: Config, plan: Plan, facts: Facts, boot_id: str, hooks: Hooks) -> None:
        self._settings = settings
        self._plan = plan
        self._facts = facts
        self._boot_id = boot_id
        self._hooks = hooks
        self._leap_table = LeapTable(facts.leap_list)
        self._selection = Selection()
        self._feeds: dict[str, LogFeed] = {}
        self._closers: list[Callable[[], None]] = []
        self._forget: Callable[[], bool] | None = None

    def opened(self) -> Measuring:
        """Everything that the plan says can be measured."""
        plan = self._plan
        if plan.chrony is not None:
            feeds = {one.refid: self._ptp(one) for one in plan.ptp if one.refid is not None}
            chrony = self._chronyd(Path(plan.chrony.socket), plan.chrony.max_clock_error_ppm)
            source: Source = FedChronyd(chrony, feeds, self._selection) if feeds else chrony
        else:
            # Without chronyd one ptp4l serves all ports.
            source = self._ptp(plan.ptp[0])
        return Measuring(source, self._feeds, tuple(self._closers), self._forget)

    def _chronyd(self, socket: Path, max_clock_error_ppm: float) -> Source:
        chrony = self._settings.chrony
        policy = bound_policy(self._settings, max_clock_error_ppm)
        source = ChronycSource(
            socket, policy, self._boot_id, timeout_s=chrony.timeout_s, program=_program(chrony.chronyc)
        )
        self._forget = source.forget
        steering_id = "clockgate-chronyd" if self._facts.has_clock_right else None
        return SteeredBy(Listened(source, "chronyd", self._hooks.signs), steering_id)

    def _ptp(self, ptp: PlannedPtp) -> Source:
        answer_s = PTP_ANSWER_S / len(self._plan.ptp)
        pmc = Pmc(
            PmcSettings(
                program=_program("pmc"),
                server_socket=Path(ptp.socket),
                client_socket=Path(ptp.socket).with_name(f"pmc-{ptp.name}.sock"),
                domain=ptp.domain,
                round_timeout_ns=round(answer_s * NS_PER_S),
            )
        )
        feed = LogFeed()
        ptp4l, phc2sys = f"ptp4l@{ptp.name}", f"phc2sys@{ptp.name}"
        self._feeds |= {ptp4l: feed, phc2sys: feed}
        policy = ptp_policy(self._settings, ptp, has_clock_right=self._facts.has_clock_right)
        source = PtpSource(
            PtpSettings(policy, max_freq_ppb=self._settings.ptp.max_frequency_ppm * PPB_PER_PPM),
            pmc,
            phc=_open_phc(ptp.hardware_clock),
            feed=feed,
            probes=self._probes(ptp, phc2sys if ptp.hardware else ptp4l),
        )
        self._closers.append(source.close)
        return Listened(source, ptp4l, self._hooks.signs)

    def _probes(self, ptp: PlannedPtp, steering: str) -> PtpProbes:
        refid, pid_of = ptp.refid, self._hooks.pid_of
        if refid is not None:
            selection = self._selection
            return PtpProbes(
                kernel=read_look,
                table_utc_offset_s=self._leap_table.utc_offset_s,
                is_refclock_selected=lambda: selection.is_on(refid),
            )
        return PtpProbes(
            kernel=read_look,
            table_utc_offset_s=self._leap_table.utc_offset_s,
            steering_id=lambda: f"clockgate-{steering}",
            may_set_clock=lambda: may_set_clock(pid_of(steering)),
        )


def may_set_clock(pid: int | None, proc: Path = Path("/proc")) -> bool | None:
    """Whether a process holds CAP_SYS_TIME; None when there is none, or it cannot be looked at."""
    status = "" if pid is None else text_of(proc / str(pid) / "status")
    _, found, rest = status.partition("\nCapEff:")
    return bool(int(rest.split()[0], 16) >> CAP_SYS_TIME & 1) if found else None


def _open_phc(path: str | None) -> Phc | None:
    if path is None:
        return None
    phc = Phc.open(Path(path))
    if isinstance(phc, PhcFailure):
        _log.warning("%s", phc.detail)
        return None
    return phc


def _program(name: str) -> str:
    """The program where it is installed; the bare name where it is not, for the source to complain about."""
    return name if "/" in name else find_program(name) or name
