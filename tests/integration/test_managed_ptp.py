"""clockgated in mode ptp: it runs its own ptp4l, with software stamps, beside a real grandmaster.

Nobody may set a clock here, so ptp4l is refused at each adjustment: the reading says so, and is bounded all the same.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from support.managed import FREE_RUNNING, HOLDOVER, SYNCHRONIZED, Node, codes, grandmaster, node
from support.veth import Namespace, namespaces

pytestmark = [pytest.mark.integration, pytest.mark.timeout(150)]

US = 1_000
PTP = (
    '[ptp]\ninterfaces = ["eth0"]\ntimestamping = "software"\n'
    "log_sync_interval = -1\nlog_announce_interval = -2\nlog_delay_request_interval = -1\n"
)
# The more often Syncs come, the longer a servo for software stamps watches before it turns to steering: 16 s at one a
# second, 37 s at eight.
EVERY_HALF_SECOND = "--logSyncInterval=-1"


@pytest.fixture
def ends() -> Iterator[tuple[Namespace, Namespace]]:
    with namespaces() as pair:
        yield pair


@pytest.fixture
def here(ends: tuple[Namespace, Namespace]) -> Iterator[Node]:
    with node(ends[1]) as made:
        made.configure("ptp", clock="holdover_horizon_s = 4", extra=PTP)
        yield made


def test_a_grandmaster_is_followed_lost_and_replaced(
    ends: tuple[Namespace, Namespace], here: Node, tmp_path: Path
) -> None:
    with grandmaster(ends[0], tmp_path / "first", EVERY_HALF_SECOND):
        here.start()
        first = here.wait_for_state(SYNCHRONIZED, 80)
        elapsed_s = time.monotonic() - here.started_mono_s
        here.wait_for("full window", lambda reading: reading.sequence >= first.sequence + 16)
        bounds_ns = [reading.relative_bound_ns for reading in here.next_readings(10)]
        print(f"\nmode ptp: SYNCHRONIZED after {elapsed_s:.1f} s, median bound {median(bounds_ns) / US:.0f} us")
        assert median(bounds_ns) < 100 * US
        assert {"STEERING_DENIED", "NOT_STEERED"} <= codes(first)
        assert first.reference.identity.startswith("ptp:")
        assert abs(first.offset_ns) <= first.relative_bound_ns
        assert not first.HasField("utc_bound_ns")

        # Killed and started again, clockgated finds its ptp4l in the same state, and the reading goes on.
        pid = here.wait_for_pid("ptp4l")
        here.kill()
        here.start()
        again = here.wait_for_state(SYNCHRONIZED, 20)
        assert (here.wait_for_pid("ptp4l"), again.epoch) == (pid, first.epoch)

    held = here.wait_for_state(HOLDOVER)
    assert codes(held) & {"INGRESS_STALE", "GRANDMASTER_LOST", "PORT_NOT_SLAVE"}
    later = here.wait_for("later reading", lambda reading: reading.sequence >= held.sequence + 3)
    assert later.state == HOLDOVER
    assert later.relative_bound_ns > held.relative_bound_ns
    free = here.wait_for_state(FREE_RUNNING)
    assert "HOLDOVER_HORIZON" in codes(free)
    assert free.epoch == first.epoch

    with grandmaster(ends[0], tmp_path / "second", EVERY_HALF_SECOND, "--clockIdentity=020000.fffe.000001"):
        back = here.wait_for_state(SYNCHRONIZED, 80)
        assert back.reference.identity == "ptp:020000.fffe.000001/0"
        assert here.wait_for_pid("ptp4l") == pid
    assert here.stop() < 2
    assert here.machine.pids("ptp4l") == []
