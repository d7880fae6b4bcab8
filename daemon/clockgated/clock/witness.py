"""Independent witnesses: what contradicts a time daemon that says it is well.

A servo that reports `s2` may follow a hardware clock that stands still, sit at the end of its range, or be refused by
the kernel. Each function looks at one such thing, over frozen looks that were not taken from the tool under test, and
returns the reason, or None when there is nothing to say. Steps, suspend and a change of the steering process are judged
in continuity.py.
"""

from dataclasses import dataclass
from enum import IntEnum

from clockgated.clock.model import Reason, ReasonCode
from clockgated.clock.ptp_report import SystemOffset
from clockgated.units import NS_PER_MS, NS_PER_S, NS_PER_US, PPB_PER_PPM

# A clock at less than half its rate is broken, not badly steered: servos stay below 10 %. One that is far ahead was
# stepped, which a servo may do.
_LEAST_RATE = 0.5
# Below this a stall of the reader looks like a stall of the clock.
_LEAST_ELAPSED_NS = NS_PER_MS
# Share of the range from which on a servo counts as pinned.
_PINNED_SHARE = 0.95
_SLIP_TOLERANCE_NS = NS_PER_S // 2
_ALTERNATIONS = 3

# Bits of struct timex, linux/timex.h.
_STA_PLL, _STA_FLL, _STA_INS, _STA_DEL = 0x0001, 0x0008, 0x0010, 0x0020
_NOMINAL_TICK_US = 10_000
# One microsecond per tick of 10 ms.
_PPB_PER_TICK_US = 100_000


class KernelState(IntEnum):
    """Return value of adjtimex: where the kernel is with a leap second, or that it is not synchronised."""

    OK = 0
    INSERT = 1
    DELETE = 2
    IN_PROGRESS = 3
    JUST_HAPPENED = 4
    UNSYNCHRONISED = 5


@dataclass(frozen=True)
class KernelLook:
    """The kernel's clock variables (adjtimex) at one moment.

    `freq_ppb` and `tick_us` together are the correction in force; positive makes CLOCK_REALTIME run faster.
    `tai_offset_s` is TAI - UTC as somebody told the kernel, None when nobody did.
    """

    boot_ns: int
    freq_ppb: float
    tick_us: int
    status: int
    state: KernelState
    tai_offset_s: int | None = None

    @property
    def correction_ppb(self) -> float:
        """The whole frequency correction: time daemons share it between both variables as they like."""
        return self.freq_ppb + (self.tick_us - _NOMINAL_TICK_US) * _PPB_PER_TICK_US

    @property
    def is_looping(self) -> bool:
        """Whether the kernel steers by its own phase loop, whose rate these variables do not show."""
        return bool(self.status & (_STA_PLL | _STA_FLL))


@dataclass(frozen=True)
class RateLook:
    """CLOCK_MONOTONIC beside CLOCK_MONOTONIC_RAW, which nothing steers; read at most `error_ns` apart.

    The kernel slews CLOCK_REALTIME and CLOCK_MONOTONIC as one. Only the former can be set, and a step is no rate: it is
    judged in continuity.py.
    """

    raw_ns: int
    mono_ns: int
    error_ns: int


@dataclass(frozen=True)
class GrandmasterTrail:
    """Which grandmasters were followed since when, oldest first, each with the boot stamp of the change to it."""

    changes: tuple[tuple[int, str], ...] = ()

    def followed(self, grandmaster_id: str, boot_ns: int, memory_ns: int) -> "GrandmasterTrail":
        """The trail after one more look. Changes older than `memory_ns` are forgotten, the one in force never."""
        changes = self.changes
        if not changes or changes[-1][1] != grandmaster_id:
            changes = (*changes, (boot_ns, grandmaster_id))
        recent = tuple(change for change in changes[:-1] if boot_ns - change[0] <= memory_ns)
        return GrandmasterTrail((*recent, changes[-1]))


def phc_frozen(name: str, progress_ns: int, elapsed_mono_ns: int) -> Reason | None:
    """Whether hardware clock `name` stood still while `elapsed_mono_ns` passed."""
    if elapsed_mono_ns < _LEAST_ELAPSED_NS or progress_ns >= _LEAST_RATE * elapsed_mono_ns:
        return None
    detail = (
        f"{name} advanced by {progress_ns / NS_PER_MS:.6g} ms while {elapsed_mono_ns / NS_PER_MS:.6g} ms passed; "
        "it cannot be used for time stamps"
    )
    return Reason(ReasonCode.PHC_FROZEN, detail)


def servo_pinned(servo: str, freq_ppb: float, max_freq_ppb: float) -> Reason | None:
    """Whether the frequency of `servo` is at the end of its range, where it has no say over the offset any more."""
    if abs(freq_ppb) < _PINNED_SHARE * max_freq_ppb:
        return None
    detail = (
        f"the frequency of {servo} is {freq_ppb / PPB_PER_PPM:+.6g} ppm; "
        f"wanted well within ±{max_freq_ppb / PPB_PER_PPM:g} ppm"
    )
    return Reason(ReasonCode.SERVO_PINNED, detail)


def steering_denied(servo: str, denied_ns_ago: int | None, may_set_clock: bool | None, memory_ns: int) -> Reason | None:
    """Whether `servo` is refused by the kernel.

    `denied_ns_ago` is the age of the last "Operation not permitted" in its log, repeated at every adjustment;
    `may_set_clock` whether its process holds CAP_SYS_TIME. Either is None when it is not known.
    """
    if denied_ns_ago is not None and denied_ns_ago <= memory_ns:
        detail = f"{servo} was refused by the kernel (Operation not permitted) {denied_ns_ago / NS_PER_S:.1f} s ago"
    elif may_set_clock is False:
        detail = f"{servo} runs without CAP_SYS_TIME"
    else:
        return None
    return Reason(ReasonCode.STEERING_DENIED, f"{detail}; give it CAP_SYS_TIME, until then nobody steers the clock")


def foreign_adjuster(
    before: KernelLook, after: KernelLook, claimed_freq_ppb: tuple[float, ...], tolerance_ppb: float
) -> Reason | None:
    """Whether somebody else adjusted the kernel's clock between two looks; only asked where our own unit steers.

    `claimed_freq_ppb` are the frequencies that our servo said it set around that time (positive: the clock runs fast,
    so the correction has the opposite sign); empty when it says none, and then only the kernel's own loop is judged.
    """
    loop = (_STA_PLL | _STA_FLL) & after.status & ~before.status
    if loop:
        detail = f"the kernel's own phase loop was switched on (status {after.status:#06x}), which our servo never does"
        return Reason(ReasonCode.FOREIGN_ADJUSTER, f"{detail}; stop the other time daemon")
    if after.correction_ppb == before.correction_ppb or not claimed_freq_ppb:
        return None
    nearest_ppb = min((-freq for freq in claimed_freq_ppb), key=lambda freq: abs(freq - after.correction_ppb))
    if abs(nearest_ppb - after.correction_ppb) <= tolerance_ppb:
        return None
    detail = (
        f"the kernel's frequency was set to {after.correction_ppb / PPB_PER_PPM:+.6g} ppm; our servo set "
        f"{nearest_ppb / PPB_PER_PPM:+.6g} ppm; stop the other time daemon"
    )
    return Reason(ReasonCode.FOREIGN_ADJUSTER, detail)


def rate_disagrees(
    before: RateLook, after: RateLook, corrections_ppb: tuple[float, float], max_rate_ppb: float
) -> Reason | None:
    """Whether CLOCK_REALTIME runs at another rate against CLOCK_MONOTONIC_RAW than the kernel says it is corrected by.

    `corrections_ppb` are KernelLook.correction_ppb in force at the two looks: in between it may have been either.
    `max_rate_ppb` is how much of a difference is allowed: what somebody may slew without its showing there.
    """
    elapsed_ns = after.raw_ns - before.raw_ns
    if elapsed_ns < _LEAST_ELAPSED_NS:
        return None
    gained_ns = (after.mono_ns - before.mono_ns) - elapsed_ns
    explained_ns = sorted(correction * elapsed_ns / NS_PER_S for correction in corrections_ppb)
    nearest_ns = min(max(gained_ns, explained_ns[0]), explained_ns[1])
    allowed_ns = max_rate_ppb * elapsed_ns / NS_PER_S + before.error_ns + after.error_ns
    if abs(gained_ns - nearest_ns) <= allowed_ns:
        return None
    detail = (
        f"CLOCK_REALTIME gained {gained_ns / NS_PER_US:+.6g} us on CLOCK_MONOTONIC_RAW in "
        f"{elapsed_ns / NS_PER_S:.3f} s; the kernel's correction explains {nearest_ns / NS_PER_US:+.6g} us, "
        f"give or take {allowed_ns / NS_PER_US:.6g} us"
    )
    return Reason(ReasonCode.WITNESS_DISAGREES, detail)


def measures_disagree(ours: SystemOffset, claimed: SystemOffset, drift_ppb: int) -> Reason | None:
    """Whether phc2sys claims a smaller offset of CLOCK_REALTIME from the hardware clock than we measure.

    Between its sample, `claimed.age_ns` ago, and ours the servo removes what it saw, and the clock drifts. A claim
    larger than our measurement is no contradiction: ours is the one that counts.
    """
    drifted_ns = -(-drift_ppb * claimed.age_ns // NS_PER_S)
    explained_ns = abs(claimed.offset_ns) + ours.error_ns + claimed.error_ns + drifted_ns
    if abs(ours.offset_ns) <= explained_ns:
        return None
    detail = (
        f"CLOCK_REALTIME is {ours.offset_ns / NS_PER_US:+.6g} us from the hardware clock by our own measurement; "
        f"phc2sys reports {claimed.offset_ns / NS_PER_US:+.6g} us, which explains {explained_ns / NS_PER_US:.6g} us"
    )
    return Reason(ReasonCode.WITNESS_DISAGREES, detail)


def tai_slip(what: str, offset_ns: int, tai_offset_s: int) -> Reason | None:
    """Whether `what` is off by the whole difference between TAI and UTC: one was taken for the other."""
    if tai_offset_s == 0 or abs(abs(offset_ns) - abs(tai_offset_s) * NS_PER_S) > _SLIP_TOLERANCE_NS:
        return None
    detail = (
        f"{what} is {offset_ns / NS_PER_S:+.3f} s off, the offset between TAI and UTC ({tai_offset_s} s): one was "
        "taken for the other; with PTP, check the grandmaster's currentUtcOffset and ptpTimescale"
    )
    return Reason(ReasonCode.TAI_SLIP, detail)


def leap_second(kernel: KernelLook | None, announced: int) -> Reason | None:
    """Where the node is with a leap second: in progress, pending, or nothing.

    `announced` is +1 or -1 when the grandmaster announces one for the end of the day, else 0. The kernel's look counts
    whoever told it; None when it cannot be read.
    """
    # JUST_HAPPENED stays until somebody clears the kernel's leap bits, maybe for hours; the clock is right by then.
    if kernel is not None and kernel.state is KernelState.IN_PROGRESS:
        return Reason(ReasonCode.LEAP_IN_PROGRESS, "the kernel is inside a leap second; the last bound is kept")
    if announced:
        act = "inserted" if announced > 0 else "deleted"
        return Reason(ReasonCode.LEAP_PENDING, f"the grandmaster announces that a second will be {act} at midnight UTC")
    if kernel is not None and kernel.status & (_STA_INS | _STA_DEL):
        act = "inserted" if kernel.status & _STA_INS else "deleted"
        return Reason(ReasonCode.LEAP_PENDING, f"the kernel is told that a second will be {act} at midnight UTC")
    return None


def grandmaster_changed(trail: GrandmasterTrail, syncs: int, wanted_syncs: int) -> Reason | None:
    """Whether another grandmaster was elected of which only `syncs` Syncs were seen: it may be a false one."""
    if len(trail.changes) < 2 or syncs >= wanted_syncs:
        return None
    (_, left), (_, elected) = trail.changes[-2:]
    detail = f"the grandmaster changed from {left} to {elected}; {syncs} of {wanted_syncs} Syncs seen since"
    return Reason(ReasonCode.GRANDMASTER_CHANGED, detail)


def two_grandmasters(trail: GrandmasterTrail) -> Reason | None:
    """Whether the node goes to and fro between grandmasters. Away and back once is a failover, more often is not."""
    identities = [identity for _, identity in trail.changes]
    changes = len(identities) - 1
    if changes < _ALTERNATIONS or len(set(identities)) == len(identities):
        return None
    detail = f"{changes} changes between the grandmasters {', '.join(dict.fromkeys(identities))}"
    return Reason(ReasonCode.TWO_GRANDMASTERS, f"{detail}; wanted one master in this domain of this segment")
