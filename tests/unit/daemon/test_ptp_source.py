import errno
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from clockgated import host
from clockgated.clock.model import Evidence, ReasonCode, Silence, SourceKind
from clockgated.clock.ptp_bound import PtpPolicy, Stamps, Steering
from clockgated.clock.witness import KernelLook, KernelState
from clockgated.sources.phc import Phc
from clockgated.sources.pmc import Pmc
from clockgated.sources.ptp import PtpProbes, PtpSettings, PtpSource
from clockgated.sources.ptp_feed import LogFeed
from clockgated.sources.ptp_log import parse_line
from support.fake_pmc import FakePmc, fake_pmc
from support.ptp_text import a_round, codes, remark_codes

SECOND = 1_000_000_000
WALL = 1_800_000_000 * SECOND
DENIED = "ptp4l[1.000]: failed to adjust the clock: Operation not permitted"
HARDWARE = PtpSettings(PtpPolicy())
SOFTWARE = PtpSettings(PtpPolicy(stamps=Stamps.SOFTWARE))


@dataclass
class Node:
    """A node in simulated time: its clocks, its hardware clock, what the kernel shows, and a pmc that says so."""

    fake: FakePmc
    pmc: Pmc
    feed: LogFeed = field(default_factory=LogFeed)
    now_ns: int = 0
    phc_error_ns: int = 37 * SECOND
    is_phc_frozen: bool = False
    phc_failure: int = 0
    kernel: KernelLook | None = None
    table_utc_offset_s: int | None = 37
    may_set_clock: bool | None = None
    is_refclock_selected: bool | None = None

    def stamp(self) -> host.Stamp:
        return host.Stamp(boot_ns=host.boot_ns(), mono_ns=self.now_ns, wall_ns=WALL + self.now_ns)

    @property
    def phc_ns(self) -> int:
        return WALL + (0 if self.is_phc_frozen else self.now_ns) + self.phc_error_ns

    def ioctl(self, _fd: int, _request: int, buffer: bytearray) -> int:
        if self.phc_failure:
            raise OSError(self.phc_failure, "No such device")
        wall_ns = WALL + self.now_ns
        times = (wall_ns - 400, self.phc_ns, wall_ns + 400)
        body = b"".join(struct.pack("=qI4x", ns // SECOND, ns % SECOND) for ns in times)
        buffer[: 16 + len(body)] = struct.pack("=I12x", 1) + body
        return 0

    def source(self, settings: PtpSettings, with_feed: bool = False, with_phc: bool = True) -> PtpSource:
        is_hardware = settings.policy.stamps is Stamps.HARDWARE
        return PtpSource(
            settings,
            self.pmc,
            phc=Phc(Path("/dev/ptp0"), -1, ioctl=self.ioctl) if is_hardware and with_phc else None,
            feed=self.feed if with_feed else None,
            probes=PtpProbes(
                kernel=lambda: self.kernel,
                table_utc_offset_s=lambda: self.table_utc_offset_s,
                steering_id=lambda: "steerer:1",
                may_set_clock=lambda: self.may_set_clock,
                is_refclock_selected=lambda: self.is_refclock_selected,
            ),
            clock=self.stamp,
        )

    def says_sync(self, settings: PtpSettings, **changes: str) -> None:
        """A Sync of this very moment."""
        clock_ns = self.phc_ns if settings.policy.stamps is Stamps.HARDWARE else WALL + self.now_ns
        self.fake.says(a_round(**{"ingress_time": str(clock_ns), **changes}))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with fake_pmc(tmp_path, round_timeout_ns=20 * SECOND) as (fake, pmc):
        yield Node(fake, pmc)


def cycles(node: Node, source: PtpSource, settings: PtpSettings, count: int = 3, **changes: str) -> Evidence:
    """`count` cycles a second apart with a fresh Sync each; the last evidence."""
    seen = []
    for _ in range(count):
        node.now_ns += SECOND
        node.says_sync(settings, **changes)
        evidence = source.read()
        assert isinstance(evidence, Evidence), evidence
        seen.append(evidence)
    return seen[-1]


def test_hardware_stamps_measure_both_clocks(node: Node) -> None:
    source = node.source(HARDWARE)
    evidence = cycles(node, source, HARDWARE)
    assert evidence.kind is SourceKind.PTP
    assert evidence.faults == ()
    assert source.judgement is not None
    assert source.judgement.terms is not None
    # Half of the 800 ns that reading took; both clocks agree once the UTC offset is taken off.
    assert source.judgement.terms.system_ns == 400
    assert evidence.steering_id == "steerer:1"
    assert evidence.utc_bound_ns is not None


def test_software_stamps_need_no_hardware_clock(node: Node) -> None:
    evidence = cycles(node, node.source(SOFTWARE), SOFTWARE)
    assert evidence.faults == ()
    assert evidence.bound_ns is not None


@pytest.mark.parametrize(("settings", "ageing_ns"), [(SOFTWARE, 40_000), (HARDWARE, 35_000)])
def test_a_sync_ages_by_what_corrects_the_clock_that_it_measured(
    node: Node, settings: PtpSettings, ageing_ns: int
) -> None:
    source = node.source(settings, with_feed=True)
    node.kernel = KernelLook(0, -30_000.0, 10_000, 0, KernelState.OK)
    node.feed.feed("ptp4l[1.000]: master offset          0 s2 freq  +20000 path delay       900")
    node.says_sync(settings)
    node.now_ns += SECOND // 2
    source.read()
    assert source.judgement is not None
    assert source.judgement.terms is not None
    assert source.judgement.terms.ageing_ns == ageing_ns


def test_outside_the_ptp_timescale_the_hardware_clock_shows_utc(node: Node) -> None:
    node.phc_error_ns = 0
    evidence = cycles(node, node.source(HARDWARE), HARDWARE, ptpTimescale="0")
    assert evidence.faults == ()
    assert evidence.utc_bound_ns is None


@pytest.mark.parametrize("phc_error_ns", [0, 74 * SECOND])
def test_a_clock_37_s_beside_the_hardware_clock_is_a_tai_slip(node: Node, phc_error_ns: int) -> None:
    node.phc_error_ns = phc_error_ns
    assert codes(cycles(node, node.source(HARDWARE), HARDWARE)) == {ReasonCode.TAI_SLIP}


def test_silence_and_garble_are_told_apart(node: Node) -> None:
    source = node.source(SOFTWARE)
    node.fake.says(a_round(portState="BROKEN"))
    garbled = source.read()
    node.fake.server_socket.unlink()
    silent = source.read()
    assert isinstance(garbled, Silence)
    assert isinstance(silent, Silence)
    assert garbled.kind is silent.kind is SourceKind.PTP
    assert garbled.reason.code is ReasonCode.SOURCE_GARBLED
    assert silent.reason.code is ReasonCode.SOURCE_UNREACHABLE


def test_a_frozen_hardware_clock_is_seen_although_everything_else_is_well(node: Node) -> None:
    source = node.source(HARDWARE)
    cycles(node, source, HARDWARE)
    node.is_phc_frozen = True
    assert ReasonCode.PHC_FROZEN in codes(cycles(node, source, HARDWARE, 2))


def test_without_the_hardware_clock_phc2sys_own_figures_serve(node: Node) -> None:
    node.phc_failure = errno.ENODEV
    source = node.source(HARDWARE, with_feed=True)
    node.feed.feed("phc2sys[1.000]: CLOCK_REALTIME phc offset      -700 s2 freq   +1500 delay    900")
    evidence = cycles(node, source, HARDWARE)
    assert evidence.faults == ()
    assert remark_codes(evidence) == {ReasonCode.SOURCE_UNREACHABLE}
    assert source.judgement is not None
    assert source.judgement.terms is not None
    assert source.judgement.terms.system_ns == 700 + 450


def test_without_both_there_is_no_bound(node: Node) -> None:
    evidence = cycles(node, node.source(HARDWARE, with_phc=False), HARDWARE)
    assert codes(evidence) == {ReasonCode.SOURCE_UNREACHABLE}
    assert evidence.bound_ns is None


def test_a_phc2sys_that_says_nothing_does_not_steer(node: Node) -> None:
    evidence = cycles(node, node.source(HARDWARE, with_feed=True), HARDWARE)
    assert codes(evidence) == {ReasonCode.SERVO_SILENT}
    assert evidence.bound_ns is not None


def test_a_phc2sys_that_claims_less_than_we_measure_is_contradicted(node: Node) -> None:
    node.phc_error_ns += 10_000_000
    node.feed.feed("phc2sys[1.000]: CLOCK_REALTIME phc offset        12 s2 freq   +1500 delay    900")
    evidence = cycles(node, node.source(HARDWARE, with_feed=True), HARDWARE)
    assert codes(evidence) == {ReasonCode.WITNESS_DISAGREES}


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("ptp4l[1.000]: master offset  437000000 s2 freq +1000000 path delay  2030", SOFTWARE),
        ("ptp4l[1.000]: rms  4 max 7 freq +1000000 +/- 0 delay 2030 +/- 1", HARDWARE),
        ("phc2sys[1.000]: CLOCK_REALTIME phc offset 0 s2 freq +100000000 delay 110", HARDWARE),
    ],
)
def test_a_servo_at_the_end_of_its_range_is_pinned(node: Node, line: str, settings: PtpSettings) -> None:
    source = node.source(settings, with_feed=True)
    node.feed.feed(line)
    assert ReasonCode.SERVO_PINNED in codes(cycles(node, source, settings))


def test_a_kernel_frequency_at_the_end_of_its_range_is_pinned(node: Node) -> None:
    node.kernel = KernelLook(0, 0.0, 11_000, 0, KernelState.OK)
    assert codes(cycles(node, node.source(SOFTWARE), SOFTWARE)) == {ReasonCode.SERVO_PINNED}


def test_denied_steering_is_a_fault_where_ptp4l_should_steer(node: Node) -> None:
    source = node.source(SOFTWARE, with_feed=True)
    node.feed.feed(DENIED)
    evidence = cycles(node, source, SOFTWARE)
    assert codes(evidence) == {ReasonCode.STEERING_DENIED}
    assert evidence.steering_id is None


def test_denied_steering_is_known_without_a_log_too(node: Node) -> None:
    node.may_set_clock = False
    assert codes(cycles(node, node.source(SOFTWARE), SOFTWARE)) == {ReasonCode.STEERING_DENIED}


def test_nobody_steers_where_nobody_may_even_before_a_process_is_seen(node: Node) -> None:
    settings = replace(SOFTWARE, policy=replace(SOFTWARE.policy, steering=Steering.NOBODY))
    node.may_set_clock = None
    assert cycles(node, node.source(settings), settings).steering_id is None


def test_denied_steering_is_a_remark_where_nobody_should_steer(node: Node) -> None:
    settings = replace(SOFTWARE, policy=replace(SOFTWARE.policy, steering=Steering.NOBODY))
    source = node.source(settings, with_feed=True)
    node.feed.feed(DENIED)
    evidence = cycles(node, source, settings)
    assert evidence.faults == ()
    assert remark_codes(evidence) == {ReasonCode.STEERING_DENIED}
    assert evidence.steering_id is None


@pytest.mark.parametrize(
    ("is_selected", "expected"), [(True, set()), (None, set()), (False, {ReasonCode.REFCLOCK_NOT_SELECTED})]
)
def test_beside_chronyd_the_gates_are_grandmaster_ingress_and_selection(
    node: Node, is_selected: bool | None, expected: set[ReasonCode]
) -> None:
    policy = PtpPolicy(stamps=Stamps.SOFTWARE, steering=Steering.CHRONYD, is_slave_demanded=False)
    settings = PtpSettings(policy)
    source = node.source(settings, with_feed=True)
    node.feed.feed(DENIED)
    node.is_refclock_selected = is_selected
    assert codes(cycles(node, source, settings, portState="UNCALIBRATED")) == expected
    lost = cycles(node, source, settings, 1, portState="UNCALIBRATED", ingress_time="0", gmPresent="false")
    assert codes(lost) == {ReasonCode.GRANDMASTER_LOST, ReasonCode.INGRESS_STALE} | expected


def test_a_leap_second_is_pending_then_in_progress(node: Node) -> None:
    source = node.source(SOFTWARE, with_feed=True)
    pending = cycles(node, source, SOFTWARE, leap61="1")
    assert remark_codes(pending) == {ReasonCode.LEAP_PENDING}
    assert not pending.leap_in_progress
    node.feed.feed("ptp4l[1.000]: clock update suspended due to leap second")
    within = cycles(node, source, SOFTWARE, leap61="1")
    assert remark_codes(within) == {ReasonCode.LEAP_IN_PROGRESS}
    assert within.leap_in_progress


def test_the_kernels_leap_second_counts_too(node: Node) -> None:
    node.kernel = KernelLook(0, 0.0, 10_000, 0x10, KernelState.IN_PROGRESS)
    assert cycles(node, node.source(SOFTWARE), SOFTWARE).leap_in_progress


def sample(freq_ppb: int) -> str:
    return f"ptp4l[1.000]: master offset 5 s2 freq {freq_ppb:+d} path delay 2030"


@pytest.mark.parametrize(
    ("steering", "kernel_freqs_ppb", "is_foreign"),
    [
        (Steering.PTP, (-100.0, -200.0, -300.0), False),
        (Steering.PTP, (-100.0, 55_000.0, 55_000.0), True),
        (Steering.NOBODY, (-100.0, 55_000.0, 55_000.0), False),
        # The newest look waits for the lines about what was set before it.
        (Steering.PTP, (-100.0, -200.0, 55_000.0), False),
    ],
)
def test_a_frequency_that_our_servo_did_not_set_is_foreign(
    node: Node, steering: Steering, kernel_freqs_ppb: tuple[float, ...], is_foreign: bool
) -> None:
    settings = replace(SOFTWARE, policy=replace(SOFTWARE.policy, steering=steering))
    source = node.source(settings, with_feed=True)
    for freq_ppb, kernel_ppb in zip((100, 200, 300), kernel_freqs_ppb, strict=True):
        node.kernel = KernelLook(host.boot_ns(), kernel_ppb, 10_000, 0, KernelState.OK)
        node.feed.feed(sample(freq_ppb))
        evidence = cycles(node, source, settings, 1)
    assert (ReasonCode.FOREIGN_ADJUSTER in codes(evidence)) is is_foreign


def test_a_feed_forgets_the_oldest_rather_than_grow() -> None:
    feed = LogFeed()
    for freq in range(3000):
        feed.feed(sample(freq))
        feed.feed("ptp4l[1.000]: nothing that we know")
    taken = feed.take()
    assert len(taken) == 1024
    assert taken[-1].event == parse_line(sample(2999))
    assert feed.take() == ()


def test_close_ends_pmc(node: Node) -> None:
    source = node.source(HARDWARE)
    cycles(node, source, HARDWARE)
    source.close()
    assert node.pmc.pid is None
    assert node.fake.is_gone(node.fake.pids[0])
