"""What is simulated: every range, and why it is what it is. None is fitted to what the bound makes of it.

A run draws its numbers from these ranges with its own seed. What the bound is allowed to assume (a server is right
within its own claims, an oscillator drifts by at most 50 ppm when nobody steers it, a boundary clock errs by at most
its allowance) holds in every run; what it is not allowed to assume does not.
"""

from dataclasses import dataclass, field
from random import Random


@dataclass(frozen=True)
class Range:
    """Uniform between `low` and `high`; with `is_log` uniform in the exponent, for what spans decades."""

    low: float
    high: float
    is_log: bool = False

    def draw(self, rng: Random) -> float:
        """One number."""
        if self.is_log:
            return float(self.low * (self.high / self.low) ** rng.random())
        return rng.uniform(self.low, self.high)


@dataclass(frozen=True)
class OscillatorRanges:
    """A crystal without oven.

    30 ppm: measured between servers by Huygens (NSDI 2018), and the tolerance of ordinary crystals. The random walk
    spans a quiet room (1e-10 per root second) to twice what the recordings of chronyd in tests/support/recorded use
    (1e-8, 2e-8). It is turned back at 45 ppm: 50 ppm are promised, 5 are left for a server that drifts itself.
    """

    frequency_ppb: Range = Range(-30_000, 30_000)
    wander_ppb: Range = Range(0.1, 20, is_log=True)
    limit_ppb: float = 45_000


@dataclass(frozen=True)
class PathRanges:
    """One way of a network path: a floor, exponential queueing, and rare bursts.

    `asymmetry` is the share by which the floor of one way exceeds the mean of both; 0.1 is ordinary routing.
    `jitter_share` is the mean queueing in shares of the floor. `burst_chance` packets wait `burst_share` times longer
    on top: exponential again, so single packets reach ten times that. `reroute_every_s` changes both floors by up to a
    factor of three (BGP, LACP rehash). `lost` is the chance that a question or its answer is lost.
    """

    floor_ns: Range = Range(30e3, 500e3, is_log=True)
    asymmetry: Range = Range(-0.1, 0.1)
    jitter_share: Range = Range(0.01, 0.3, is_log=True)
    burst_chance: float = 0.02
    burst_share: float = 3.0
    reroute_every_s: float | None = None
    reroute_factor: Range = Range(0.33, 3.0, is_log=True)
    lost: Range = Range(0.0, 0.02)


@dataclass(frozen=True)
class DaemonRanges:
    """clockgated itself: a cycle a second, chronyc or pmc answering after a few ms, a machine that is busy at times.

    `stall_chance` cycles find the daemon stopped for `stall_s` (swap, cgroup throttling); readings expire meanwhile.
    `silence_chance` cycles get no answer within the time-out. `preempted_chance` looks at the clocks are torn apart. In
    every second run the time daemon is one of ours, and other adjusters are foreign.
    """

    interval_s: float = 1.0
    answer_s: Range = Range(0.002, 0.03, is_log=True)
    slow_answer_chance: float = 0.01
    slow_answer_s: Range = Range(0.1, 0.8)
    silence_chance: float = 0.002
    stall_chance: float = 0.0005
    stall_s: Range = Range(1.0, 10.0)
    preempted_chance: float = 0.05
    preempted_ns: Range = Range(1e3, 200e3, is_log=True)
    own_steering_chance: float = 0.5


@dataclass(frozen=True)
class TroubleRanges:
    """What happens to a node now and then; None: never.

    Outages last from seconds (a switch restarts) to the better part of an hour; so do sleeps, whose length is told by
    a counter that never stops or by a battery-backed clock of whole seconds. A stranger's step spans what `date -s` and
    a hypervisor do (seconds) down to what no witness can tell from noise (1 us).
    """

    outage_every_s: float | None = None
    outage_s: Range = Range(10, 3000, is_log=True)
    sleep_every_s: float | None = None
    sleep_s: Range = Range(2, 3000, is_log=True)
    sleep_error_ns: Range = Range(1e3, 1e9, is_log=True)
    step_every_s: float | None = None
    step_ns: Range = Range(1e3, 10e9, is_log=True)


@dataclass(frozen=True)
class NtpRanges:
    """chronyd and its server.

    `polls_log2_s` are pairs of least and longest poll: ours (4, 5), a pool's (6, 6), chronyd's own (6, 10), a LAN's.
    `max_clock_error_ppb` is 50 ppm where we write the configuration and chronyd's default of 1 ppm elsewhere.
    `is_steering` False is chronyd -x. The server is off by up to `server_error_share` of what it claims, slowly.
    `start_offset_ns` is what a machine with a battery-backed clock starts with; `steps_at_start` is chronyd's makestep
    of 0.1 s in the first three updates.
    """

    polls_log2_s: tuple[tuple[int, int], ...] = ((4, 5), (6, 6), (6, 10), (2, 4))
    max_clock_error_ppb: tuple[int, ...] = (1_000, 50_000)
    is_steering: bool = True
    server_delay_ns: Range = Range(1e3, 20e6, is_log=True)
    server_dispersion_ns: Range = Range(1e3, 5e6, is_log=True)
    server_error_share: Range = Range(-0.95, 0.95)
    server_period_s: Range = Range(5_000, 50_000)
    start_offset_ns: Range = Range(1e3, 2e9, is_log=True)
    steps_at_start: tuple[bool, ...] = (True, False)
    timer_late_ns: Range = Range(50e3, 2e6, is_log=True)


@dataclass(frozen=True)
class PtpRanges:
    """ptp4l, and phc2sys where `is_hardware`.

    Intervals of Sync and delay requests are linuxptp's default (2^0 s) and those of faster profiles; phc2sys asks once
    a second. `stamp_noise_ns` is what a stamp is off: 8 ns ticks in hardware; in software the delays of the stamping
    are part of the path. `phc_read_ns` is how long a read of the hardware clock takes, of which the system stamp lies
    anywhere inside. The grandmaster is off UTC within the accuracy that it claims; boundary clocks within 1 us each.
    """

    is_hardware: bool = True
    log_sync_s: tuple[int, ...] = (0, 0, -3, 1)
    log_delay_s: tuple[int, ...] = (0, 0, -3, 1)
    stamp_noise_ns: float = 8
    phc_read_ns: Range = Range(500, 10e3, is_log=True)
    hops: tuple[int, ...] = (1, 1, 2, 4)
    hop_error_ns: Range = Range(-1_000, 1_000)
    accuracy_ns: int = 100
    start_offset_ns: Range = Range(1e3, 2e9, is_log=True)
    max_frequency_ppb: float = 500_000
    announce_timeout_s: float = 6.0


@dataclass(frozen=True)
class Scenario:
    """One kind of node; `servo` says which of the two time daemons it runs."""

    servo: NtpRanges | PtpRanges
    path: PathRanges = PathRanges()
    trouble: TroubleRanges = TroubleRanges()
    oscillator: OscillatorRanges = OscillatorRanges()
    daemon: DaemonRanges = field(default_factory=DaemonRanges)


_WAN = PathRanges(Range(5e6, 80e6, is_log=True), Range(-0.2, 0.2), Range(0.01, 0.3, is_log=True))
# A radio link or a VPN: a few ms of floor and as much queueing again, like the recording "jitter".
_ROUGH = PathRanges(Range(1e6, 10e6, is_log=True), Range(-0.2, 0.2), Range(0.5, 3.0), burst_chance=0.05)
_LOPSIDED = PathRanges(Range(0.1e6, 20e6, is_log=True), Range(-0.98, 0.98))
_REROUTED = PathRanges(Range(0.1e6, 20e6, is_log=True), Range(-0.5, 0.5), reroute_every_s=900)
_LOSSY = PathRanges(Range(0.1e6, 20e6, is_log=True), lost=Range(0.05, 0.3))
# Switches that know PTP: cable and transparent clocks, tens of ns of noise.
_AWARE = PathRanges(Range(200, 20e3, is_log=True), Range(-0.1, 0.1), Range(0.001, 0.01, is_log=True), 0.0)
# Switches that do not: store and forward behind other packets, 1 in 50 behind a full-sized burst.
_UNAWARE = PathRanges(Range(2e3, 50e3, is_log=True), Range(-0.3, 0.3), Range(0.01, 0.2, is_log=True))
# Incast of a training job on such switches: one packet in a hundred behind a buffer of many times the path.
_CONGESTED = PathRanges(
    Range(5e3, 50e3, is_log=True), Range(-0.3, 0.3), Range(0.05, 0.5), burst_chance=0.01, burst_share=20.0
)
# Kernel stamps: interrupt and softirq latency, ten and more us; a loaded host adds scheduling.
_STAMPED = PathRanges(Range(5e3, 50e3, is_log=True), Range(-0.5, 0.5), Range(0.05, 0.5), burst_chance=0.01)
_STAMPED_LOADED = PathRanges(
    Range(10e3, 100e3, is_log=True), Range(-0.5, 0.5), Range(0.3, 2.0), burst_chance=0.02, burst_share=10.0
)
# Across a campus, and not the same way back.
_FAR = PathRanges(Range(50e3, 2e6, is_log=True), Range(-0.9, 0.9), Range(0.002, 0.02, is_log=True))
_MOVING = PathRanges(Range(2e3, 50e3, is_log=True), Range(-0.5, 0.5), Range(0.01, 0.1), reroute_every_s=600)

_OUTAGES = TroubleRanges(outage_every_s=900)
# Short and many, so that some begin while the servo answers to a delayed packet: that correction stays in force.
_FREQUENT_OUTAGES = TroubleRanges(outage_every_s=120, outage_s=Range(10, 100, is_log=True))
# Far more often than on any real node, so that a run has some; PTP recovers in seconds, chronyd in several polls.
_STEPS = TroubleRanges(step_every_s=600)
_PTP_STEPS = TroubleRanges(step_every_s=150)
_SLEEPS = TroubleRanges(sleep_every_s=600)
_PTP_SLEEPS = TroubleRanges(sleep_every_s=150)
_SOFTWARE = PtpRanges(is_hardware=False, stamp_noise_ns=0)

SCENARIOS: dict[str, Scenario] = {
    "ntp_lan": Scenario(NtpRanges()),
    "ntp_wan": Scenario(NtpRanges(), _WAN),
    "ntp_jitter": Scenario(NtpRanges(), _ROUGH),
    "ntp_asymmetric": Scenario(NtpRanges(), _LOPSIDED),
    "ntp_reroute": Scenario(NtpRanges(), _REROUTED),
    "ntp_loss": Scenario(NtpRanges(), _LOSSY),
    "ntp_outage": Scenario(NtpRanges(), trouble=_OUTAGES),
    "ntp_steps": Scenario(NtpRanges(), trouble=_STEPS),
    "ntp_unsteered": Scenario(NtpRanges(is_steering=False), trouble=_OUTAGES),
    "ntp_sleeps": Scenario(NtpRanges(), trouble=_SLEEPS),
    "ptp_aware": Scenario(PtpRanges(), _AWARE),
    "ptp_unaware": Scenario(PtpRanges(), _UNAWARE),
    "ptp_asymmetric": Scenario(PtpRanges(), _FAR),
    "ptp_congested": Scenario(PtpRanges(), _CONGESTED),
    "ptp_reroute": Scenario(PtpRanges(), _MOVING),
    "ptp_outage": Scenario(PtpRanges(), _UNAWARE, _OUTAGES),
    "ptp_congested_outage": Scenario(PtpRanges(), _CONGESTED, _FREQUENT_OUTAGES),
    "ptp_steps": Scenario(PtpRanges(), _UNAWARE, _PTP_STEPS),
    "ptp_sleeps": Scenario(PtpRanges(), _UNAWARE, _PTP_SLEEPS),
    "ptp_software": Scenario(_SOFTWARE, _STAMPED),
    "ptp_software_loaded": Scenario(_SOFTWARE, _STAMPED_LOADED),
    "ptp_software_outage": Scenario(_SOFTWARE, _STAMPED, _OUTAGES),
    "ptp_software_loaded_outage": Scenario(_SOFTWARE, _STAMPED_LOADED, _FREQUENT_OUTAGES),
    "ptp_software_steps": Scenario(_SOFTWARE, _STAMPED, _PTP_STEPS),
    "ptp_software_sleeps": Scenario(_SOFTWARE, _STAMPED, _PTP_SLEEPS),
}
