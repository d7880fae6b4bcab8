"""A PTP node as a source: pmc's report, the servos' log lines and our own look at the clocks, joined once a cycle."""

from collections.abc import Callable
from dataclasses import dataclass

from clockgated import host
from clockgated.clock.model import Evidence, Reason, ReasonCode, Silence, SourceKind
from clockgated.clock.ptp_bound import PtpJudgement, PtpLook, PtpPolicy, Stamps, Steering, judge
from clockgated.clock.ptp_report import PtpReport, SystemOffset
from clockgated.clock.ptp_window import PtpWindow
from clockgated.clock.witness import (
    KernelLook,
    foreign_adjuster,
    leap_second,
    measures_disagree,
    phc_frozen,
    servo_pinned,
    steering_denied,
)
from clockgated.sources.phc import Phc, PhcFailure, PhcReading
from clockgated.sources.pmc import Pmc
from clockgated.sources.pmc_text import parse, ptp_report
from clockgated.sources.ptp_feed import LogFeed, ServoMemory, remembered
from clockgated.units import NS_PER_S

# A line is printed after the kernel was told, and takes a while to arrive.
_LINE_DELAY_NS = 2 * NS_PER_S
# Whole ppb are printed; the kernel keeps 2^-16 ppm.
_FREQ_TOLERANCE_PPB = 2.0
_LEAP_NOTICE_NS = 2 * NS_PER_S


def _unknown() -> None:
    return None


@dataclass(frozen=True)
class PtpProbes:
    """What the source asks others about, each cycle; an answer of None means that it is not known.

    `kernel` reads adjtimex. `table_utc_offset_s` is TAI - UTC by the leap-second table. `steering_id` names the process
    that steers CLOCK_REALTIME and `may_set_clock` says whether it holds CAP_SYS_TIME. `is_refclock_selected` says
    whether chronyd follows the reference clock that PTP feeds.
    """

    kernel: Callable[[], KernelLook | None] = _unknown
    table_utc_offset_s: Callable[[], int | None] = _unknown
    steering_id: Callable[[], str | None] = _unknown
    may_set_clock: Callable[[], bool | None] = _unknown
    is_refclock_selected: Callable[[], bool | None] = _unknown


@dataclass(frozen=True)
class PtpSettings:
    """Policy of the bound, and limits of the witnesses.

    `max_freq_ppb` is more than any sane oscillator is off: a servo there has lost its clock. A servo that is refused by
    the kernel says so at each adjustment; `denied_memory_ns` bridges the time between two. phc2sys that says nothing
    for `servo_silence_ns` does not steer.
    """

    policy: PtpPolicy
    max_freq_ppb: int = 500_000
    denied_memory_ns: int = 30 * NS_PER_S
    servo_silence_ns: int = 10 * NS_PER_S


class PtpSource:
    """Evidence of one ptp4l. `phc` belongs to hardware stamps, `feed` to programs whose output we follow.

    `judgement` is the last one, None before the first, for what evidence has no field for. `close` ends pmc and closes
    the hardware clock.
    """

    kind = SourceKind.PTP

    def __init__(
        self,
        settings: PtpSettings,
        pmc: Pmc,
        *,
        phc: Phc | None = None,
        feed: LogFeed | None = None,
        probes: PtpProbes = PtpProbes(),
        clock: Callable[[], host.Stamp] = host.stamp,
    ):
        self._settings = settings
        self._pmc = pmc
        self._phc = phc
        self._feed = feed
        self._probes = probes
        self._clock = clock
        self._window = PtpWindow()
        self._memory = ServoMemory()
        self._phc_seen: tuple[int, int] | None = None
        self._kernel_looks: tuple[KernelLook, ...] = ()
        self.judgement: PtpJudgement | None = None

    def read(self) -> Evidence | Silence:
        """One cycle: ask, look, judge. Takes as long as `Pmc.ask`; what a program or device does wrong is data."""
        before = self._clock()
        answers = self._pmc.ask()
        # Read even when ptp4l is silent: these histories must not have holes.
        kernel = self._probes.kernel()
        self._remember(kernel)
        phc = self._phc.read() if self._phc else None
        after = self._clock()
        frozen = self._phc_witness(phc, after.mono_ns)
        if isinstance(answers, Reason):
            return Silence(self.kind, before.boot_ns, answers)
        report = ptp_report(parse(answers))
        if isinstance(report, str):
            return Silence(self.kind, before.boot_ns, Reason(ReasonCode.SOURCE_GARBLED, report))
        system, system_faults, system_remarks = self._system_offset(report, phc, after.boot_ns)
        denied = self._denial(after.boot_ns)
        leap = self._leap(kernel, report, after.boot_ns)
        is_denial_expected = self._settings.policy.steering is Steering.NOBODY
        look = PtpLook(
            as_of_boot_ns=before.boot_ns,
            now_ns=self._now_ns(phc, after.wall_ns),
            system=system,
            correction_ppb=self._correction_ppb(kernel),
            table_utc_offset_s=self._probes.table_utc_offset_s(),
            faults=(*frozen, *system_faults, *self._servo_faults(kernel), *(() if is_denial_expected else denied)),
            remarks=(*system_remarks, *leap, *(denied if is_denial_expected else ())),
            is_leap_in_progress=any(reason.code is ReasonCode.LEAP_IN_PROGRESS for reason in leap),
            # A process that the kernel refuses, or that may not even try, steers nothing.
            steering_id=None if denied or is_denial_expected else self._probes.steering_id(),
        )
        self.judgement = judge(report, look, self._window, self._settings.policy)
        self._window = self.judgement.window
        return self.judgement.evidence

    def close(self) -> None:
        """End what the source started; harmless when done twice."""
        self._pmc.close()
        if self._phc:
            self._phc.close()

    @property
    def _is_hardware(self) -> bool:
        return self._settings.policy.stamps is Stamps.HARDWARE

    @property
    def _system_servo(self) -> str:
        return "phc2sys" if self._is_hardware else "ptp4l"

    def _remember(self, kernel: KernelLook | None) -> None:
        for seen in self._feed.take() if self._feed else ():
            self._memory = remembered(self._memory, seen, is_port_system=not self._is_hardware)
        if kernel is not None:
            self._kernel_looks = (*self._kernel_looks, kernel)[-3:]

    def _correction_ppb(self, kernel: KernelLook | None) -> float | None:
        """What is in force on the clock that ptp4l measures: by the kernel, or by ptp4l's word for a hardware clock."""
        if self._is_hardware:
            return self._memory.port_freq_ppb
        return kernel.correction_ppb if kernel is not None else None

    def _now_ns(self, phc: PhcReading | PhcFailure | None, wall_ns: int) -> int | None:
        if not self._is_hardware:
            return wall_ns
        return phc.phc_ns if isinstance(phc, PhcReading) else None

    def _phc_witness(self, phc: PhcReading | PhcFailure | None, mono_ns: int) -> tuple[Reason, ...]:
        if not self._phc or not isinstance(phc, PhcReading):
            return ()
        seen, self._phc_seen = self._phc_seen, (phc.phc_ns, mono_ns)
        if seen is None:
            return ()
        reason = phc_frozen(str(self._phc.path), phc.phc_ns - seen[0], mono_ns - seen[1])
        return (reason,) if reason else ()

    def _system_offset(
        self, report: PtpReport, phc: PhcReading | PhcFailure | None, boot_ns: int
    ) -> tuple[SystemOffset | None, tuple[Reason, ...], tuple[Reason, ...]]:
        """CLOCK_REALTIME against the hardware clock, ours before the servo's; then faults and remarks about it."""
        if not self._is_hardware:
            return None, (), ()
        claim = self._memory.claim
        if claim and boot_ns - claim.seen_boot_ns > self._settings.servo_silence_ns:
            claim = None
        faults: tuple[Reason, ...] = ()
        if self._feed and not claim:
            detail = f"phc2sys gave no sample for {self._settings.servo_silence_ns / NS_PER_S:g} s; is it running?"
            faults = (Reason(ReasonCode.SERVO_SILENT, detail),)
        claimed = claim.at(boot_ns) if claim else None
        if not isinstance(phc, PhcReading):
            detail = phc.detail if phc else "no hardware clock is configured to be read beside phc2sys"
            unread = (Reason(ReasonCode.SOURCE_UNREACHABLE, detail),)
            return (claimed, faults, unread) if claimed else (None, faults + unread, ())
        # With a grandmaster outside the PTP timescale phc2sys applies no UTC offset, whatever is announced.
        utc_offset_ns = report.utc_offset_s * NS_PER_S if report.is_ptp_timescale else 0
        ours = SystemOffset(phc.wall_ns - (phc.phc_ns - utc_offset_ns), -(-phc.read_delay_ns // 2))
        dispute = measures_disagree(ours, claimed, self._settings.policy.max_drift_ppb) if claimed else None
        return ours, faults + ((dispute,) if dispute else ()), ()

    def _denial(self, boot_ns: int) -> tuple[Reason, ...]:
        if self._settings.policy.steering is Steering.CHRONYD:
            # linuxptp's servo only feeds chronyd: what it says about the kernel does not matter.
            return ()
        denied_boot_ns = self._memory.denied_boot_ns
        denied_ns_ago = None if denied_boot_ns is None else boot_ns - denied_boot_ns
        memory_ns = self._settings.denied_memory_ns
        reason = steering_denied(self._system_servo, denied_ns_ago, self._probes.may_set_clock(), memory_ns)
        return (reason,) if reason else ()

    def _leap(self, kernel: KernelLook | None, report: PtpReport, boot_ns: int) -> tuple[Reason, ...]:
        suspended_boot_ns = self._memory.leap_suspended_boot_ns
        if suspended_boot_ns is not None and boot_ns - suspended_boot_ns <= _LEAP_NOTICE_NS:
            detail = "ptp4l suspended its updates around a leap second; the last bound is kept"
            return (Reason(ReasonCode.LEAP_IN_PROGRESS, detail),)
        reason = leap_second(kernel, report.leap)
        return (reason,) if reason else ()

    def _servo_faults(self, kernel: KernelLook | None) -> tuple[Reason, ...]:
        settings, memory = self._settings, self._memory
        steering = settings.policy.steering
        if steering is Steering.CHRONYD and self._probes.is_refclock_selected() is False:
            selection = Reason(ReasonCode.REFCLOCK_NOT_SELECTED, "chronyd does not follow the PTP reference clock")
        else:
            selection = None
        found: list[Reason | None] = [selection]
        if memory.port_freq_ppb is not None and settings.policy.is_slave_demanded and steering is not Steering.NOBODY:
            found.append(servo_pinned("ptp4l", memory.port_freq_ppb, settings.max_freq_ppb))
        if steering is Steering.PTP:
            if memory.system_freqs_ppb and self._is_hardware:
                found.append(servo_pinned("phc2sys", memory.system_freqs_ppb[-1][1], settings.max_freq_ppb))
            if kernel:
                found.append(servo_pinned("CLOCK_REALTIME", kernel.correction_ppb, settings.max_freq_ppb))
            found.append(self._foreign_adjuster())
        return tuple(reason for reason in found if reason)

    def _foreign_adjuster(self) -> Reason | None:
        """Judge the two looks before the newest: the lines about what was set before them have arrived by now."""
        if len(self._kernel_looks) < 3:
            return None
        before, after, _ = self._kernel_looks
        since_boot_ns = before.boot_ns - _LINE_DELAY_NS
        claimed = tuple(float(freq) for boot_ns, freq in self._memory.system_freqs_ppb if boot_ns >= since_boot_ns)
        return foreign_adjuster(before, after, claimed, _FREQ_TOLERANCE_PPB)
