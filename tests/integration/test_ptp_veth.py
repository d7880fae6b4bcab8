"""PtpSource beside a real ptp4l in network namespaces: software stamps, and nobody may set a clock."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from clockgated.clock.model import Evidence, ReasonCode, Silence
from clockgated.clock.ptp_bound import PtpPolicy, Stamps, Steering
from clockgated.sources.pmc import Pmc, PmcSettings
from clockgated.sources.pmc_text import parse
from clockgated.sources.ptp import PtpSettings, PtpSource
from support.daemon import environment
from support.ptp import Ptp4l, Segment, segment, wait_until
from support.ptp_text import codes, remark_codes
from support.tools import require_tool

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

US, MS = 1_000, 1_000_000
# Nobody in these namespaces may steer, and nobody is meant to.
UNSTEERED = PtpPolicy(stamps=Stamps.SOFTWARE, steering=Steering.NOBODY)
# Offset by 5 ms with the path delay unchanged: what it sends seems to leave late, what it gets to come early.
FALSE_TIME = ("--egressLatency=5000000", "--ingressLatency=-5000000")


class Watch:
    """A source beside one ptp4l, and the last thing it said."""

    def __init__(self, here: Segment, ptp4l: Ptp4l, policy: PtpPolicy = UNSTEERED):
        client_socket = here.folder / f"pmc-{ptp4l.socket.name}-{policy.domain}"
        settings = PmcSettings(str(require_tool("pmc")), ptp4l.socket, client_socket, domain=policy.domain)
        self.pmc = Pmc(settings)
        self.source = PtpSource(PtpSettings(policy), self.pmc, feed=ptp4l.feed)
        here.stack.callback(self.source.close)
        self.last: Evidence | Silence | None = None

    def sees(self, what: Callable[[Evidence], bool]) -> Callable[[], bool]:
        """A question for wait_until."""

        def ask() -> bool:
            self.last = self.source.read()
            return isinstance(self.last, Evidence) and what(self.last)

        return ask

    def evidence(self) -> Evidence:
        """One more measurement, which must not be silent."""
        self.last = self.source.read()
        assert isinstance(self.last, Evidence), self.last
        return self.last

    def wait_for_full_window(self) -> None:
        """Wait for evidence without faults and offsets enough for a bound of full strength."""
        wait_until("evidence without faults", self.sees(lambda evidence: not evidence.faults and self._is_full()))

    def _is_full(self) -> bool:
        judgement = self.source.judgement
        return judgement is not None and len(judgement.window.syncs) >= UNSTEERED.min_syncs


@pytest.fixture
def here() -> Iterator[Segment]:
    with segment("master", "other", "client") as made:
        yield made


def pair(here: Segment, *client_options: str, policy: PtpPolicy = UNSTEERED) -> tuple[Ptp4l, Ptp4l, Watch]:
    """A grandmaster and a client that follows it, watched."""
    master = here.ptp4l("master")
    client = here.ptp4l("client", "-s", *client_options)
    return master, client, Watch(here, client, policy)


def test_a_client_is_bounded_below_100_us_and_known_to_be_unsteered(here: Segment) -> None:
    _, client, watch = pair(here)
    watch.wait_for_full_window()
    seen = []
    for _ in range(20):
        evidence = watch.evidence()
        if not evidence.faults:
            assert evidence.bound_ns is not None
            # Both share one clock: what is measured is the error itself.
            assert abs(evidence.offset_ns or 0) <= evidence.bound_ns
            seen.append(evidence.bound_ns)
    assert len(seen) >= 15
    assert median(seen) < 100 * US
    assert ReasonCode.STEERING_DENIED in remark_codes(evidence)
    assert evidence.steering_id is None
    assert evidence.utc_bound_ns is None
    assert evidence.reference.identity is not None
    assert any("UNCALIBRATED to SLAVE" in line for line in client.lines)


def test_two_clients_of_one_grandmaster_agree_within_their_bounds(here: Segment) -> None:
    here.ptp4l("master")
    watches = [Watch(here, here.ptp4l(role, "-s")) for role in ("other", "client")]
    for watch in watches:
        watch.wait_for_full_window()
    for _ in range(10):
        one, two = (watch.evidence() for watch in watches)
        if one.faults or two.faults:
            continue
        assert one.reference.identity == two.reference.identity is not None
        assert one.bound_ns is not None
        assert two.bound_ns is not None
        assert abs((one.offset_ns or 0) - (two.offset_ns or 0)) <= one.bound_ns + two.bound_ns
        return
    raise AssertionError(f"never both without faults: {[watch.last for watch in watches]}")


def test_a_client_that_should_steer_and_may_not_is_faulty(here: Segment) -> None:
    _, _, watch = pair(here, policy=replace(UNSTEERED, steering=Steering.PTP))
    denied = {ReasonCode.STEERING_DENIED}
    wait_until("denied steering", watch.sees(lambda evidence: codes(evidence) == denied and bool(evidence.bound_ns)))


def test_a_killed_grandmaster_ends_the_bound_and_its_return_brings_it_back(here: Segment) -> None:
    master, _, watch = pair(here)
    watch.wait_for_full_window()
    master.stop()
    wait_until("loss", watch.sees(lambda evidence: ReasonCode.INGRESS_STALE in codes(evidence)), 15)
    wait_until("no port", watch.sees(lambda evidence: ReasonCode.PORT_NOT_SLAVE in codes(evidence)), 15)
    lost = watch.evidence()
    assert lost.bound_ns is None
    assert lost.offset_ns is None
    here.ptp4l("master")
    watch.wait_for_full_window()


def test_a_lost_link_is_a_lost_grandmaster(here: Segment) -> None:
    _, _, watch = pair(here)
    watch.wait_for_full_window()
    here.link("client", "down")
    lost = {ReasonCode.INGRESS_STALE, ReasonCode.PORT_NOT_SLAVE, ReasonCode.GRANDMASTER_LOST}
    wait_until("loss", watch.sees(lambda evidence: codes(evidence) >= lost), 30)
    assert watch.evidence().bound_ns is None


def test_a_better_grandmaster_with_another_time_is_not_believed_at_once(here: Segment) -> None:
    _, _, watch = pair(here)
    watch.wait_for_full_window()
    before = watch.evidence().reference.identity
    here.ptp4l("other", "--priority1=10", *FALSE_TIME)
    changed = {ReasonCode.GRANDMASTER_CHANGED}
    wait_until("another grandmaster", watch.sees(lambda evidence: changed <= codes(evidence)))
    watch.wait_for_full_window()
    after = watch.evidence()
    assert after.reference.identity != before
    assert after.offset_ns is not None
    assert after.bound_ns is not None
    assert -6 * MS < after.offset_ns < -4 * MS
    assert after.bound_ns >= abs(after.offset_ns)


def test_another_domain_is_silence(here: Segment) -> None:
    _, client, watch = pair(here)
    watch.wait_for_full_window()
    elsewhere = Watch(here, client, replace(UNSTEERED, domain=5)).source.read()
    assert isinstance(elsewhere, Silence)
    assert elsewhere.reason.code is ReasonCode.SOURCE_UNREACHABLE
    assert "domainNumber 5" in elsewhere.reason.detail


def test_a_grandmaster_of_another_domain_is_none(here: Segment) -> None:
    here.ptp4l("master", "--domainNumber=5")
    watch = Watch(here, here.ptp4l("client", "-s"))
    wait_until("an answer", watch.sees(lambda _: True))
    evidence = watch.evidence()
    assert codes(evidence) >= {ReasonCode.PORT_NOT_SLAVE, ReasonCode.INGRESS_STALE}
    assert evidence.bound_ns is None


def test_a_servo_for_chronyd_stays_uncalibrated_with_its_gates_open(here: Segment) -> None:
    policy = replace(UNSTEERED, steering=Steering.CHRONYD, is_slave_demanded=False)
    _, client, watch = pair(here, "--clock_servo=ntpshm", "--ntpshm_segment=7", policy=policy)
    watch.wait_for_full_window()
    assert not any("to SLAVE" in line for line in client.lines)
    assert remark_codes(watch.evidence()) & {ReasonCode.STEERING_DENIED} == set()


def test_a_stopped_ptp4l_is_silence_until_it_goes_on(here: Segment) -> None:
    _, client, watch = pair(here)
    watch.wait_for_full_window()
    client.process.send_signal(signal.SIGSTOP)
    assert isinstance(watch.source.read(), Silence)
    client.process.send_signal(signal.SIGCONT)
    watch.wait_for_full_window()


def test_a_restarted_ptp4l_is_asked_again_without_a_new_pmc(here: Segment) -> None:
    _, client, watch = pair(here)
    watch.wait_for_full_window()
    pid = watch.pmc.pid
    client.stop()
    assert isinstance(watch.source.read(), Silence)
    # The same address: a leftover socket that nobody serves is replaced.
    here.ptp4l("client", "-s", f"--uds_address={client.socket}")
    watch.wait_for_full_window()
    assert watch.pmc.pid == pid


def test_with_a_boundary_hop_the_grandmaster_answers_too_and_is_not_taken_for_us(here: Segment) -> None:
    _, client, watch = pair(here)
    watch.wait_for_full_window()
    asked = subprocess.run(
        [require_tool("pmc"), "-u", "-b", "1", "-s", client.socket, "-i", here.folder / "hop", "GET TIME_STATUS_NP"],
        capture_output=True, check=True, timeout=20,
    )  # fmt: skip
    answer = parse(asked.stdout)
    assert len(answer.clock_ids) == 2
    assert answer.time_status is None


def test_pmc_does_not_outlive_a_killed_daemon(here: Segment) -> None:
    _, client, _ = pair(here)
    program = (
        "import sys, time; from pathlib import Path; from clockgated.sources.pmc import Pmc, PmcSettings\n"
        "pmc = Pmc(PmcSettings(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))\n"
        "answer = pmc.ask(); print(pmc.pid, flush=True); time.sleep(60)"
    )
    words = [str(require_tool("pmc")), str(client.socket), str(here.folder / "orphan")]
    wait_until("the socket", client.socket.exists)
    line = [sys.executable, "-c", program, *words]
    daemon = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment())
    try:
        assert daemon.stdout is not None
        pid = int(daemon.stdout.readline())
        assert Path("/proc", str(pid)).exists()
    finally:
        os.kill(daemon.pid, signal.SIGKILL)
        daemon.communicate(timeout=10)
    wait_until("end of pmc", lambda: not Path("/proc", str(pid)).exists(), 10)
