"""clockgated in mode ptp with linuxptp 4.2, whose servo starts anew whenever the kernel refuses an adjustment.

Nobody may set a clock here. Told to steer, this ptp4l would leave its port UNCALIBRATED for ever and repeat its refusal
every other second: it is told to measure only, and the reading says that nobody steers.
"""

import time
from pathlib import Path
from statistics import median

import pytest
from clockgated.manage.options import LINUXPTP, OLDEST
from support.managed import SYNCHRONIZED, codes, grandmaster, node
from support.releases import FETCH, releases
from support.tools import missing
from support.veth import namespaces

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

US = 1_000
PTP = (
    '[ptp]\ninterfaces = ["eth0"]\ntimestamping = "software"\n'
    "log_sync_interval = -1\nlog_announce_interval = -2\nlog_delay_request_interval = -1\n"
)


def programs() -> Path:
    """Folder of the start scripts of the first release whose servo starts anew."""
    for release in releases():
        if release.ptp4l.version >= (4, 0) and release.suite != "host":
            return Path(release.ptp4l.path).parent
    missing(f"no linuxptp newer than {OLDEST[LINUXPTP]}; run '{FETCH}'")


def test_a_servo_that_is_refused_measures_and_never_counts_as_steering(tmp_path: Path) -> None:
    folder = programs()
    with namespaces() as ends, grandmaster(ends[0], tmp_path / "first", "--logSyncInterval=-1"), node(ends[1]) as here:
        here.configure("ptp", extra=PTP)
        here.start(path=folder)
        first = here.wait_for_state(SYNCHRONIZED, 60)
        elapsed_s = time.monotonic() - here.started_mono_s
        here.wait_for("full window", lambda reading: reading.sequence >= first.sequence + 16)
        readings = here.next_readings(10)
        bound_ns = median(reading.relative_bound_ns for reading in readings)
        print(f"\nmode ptp, linuxptp 4.2: SYNCHRONIZED after {elapsed_s:.1f} s, median bound {bound_ns / US:.0f} us")
        assert bound_ns < 100 * US
        for reading in readings:
            assert reading.state == SYNCHRONIZED
            assert {"STEERING_DENIED", "NOT_STEERED"} <= codes(reading)
            assert abs(reading.offset_ns) <= reading.relative_bound_ns
            assert reading.epoch == first.epoch
        assert "free_running 1" in (here.folder / "run/ptp4l-eth0.conf").read_text().splitlines()
        assert "LISTENING to UNCALIBRATED" in here.log
        assert "to SLAVE" not in here.log
        assert "Operation not permitted" not in here.log
