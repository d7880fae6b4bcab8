"""clockgated in mode ptp+ntp: PTP feeds chronyd, which alone would steer; without PTP the same chronyd follows NTP.

Nobody may set a clock here: clockgated and all that it starts lack CAP_SYS_TIME.
"""

import tempfile
import time
from pathlib import Path

import pytest
from support.chrony import chronyd
from support.managed import SYNCHRONIZED, Reading, codes, grandmaster, node
from support.veth import namespaces

pytestmark = [pytest.mark.integration, pytest.mark.timeout(150)]

US = 1_000
BOTH = """
[ptp]
interfaces = ["eth0"]
timestamping = "software"
log_sync_interval = -3
log_announce_interval = -2
log_delay_request_interval = -3
[ntp]
servers = [{ host = "10.77.0.1", min_poll_log2 = -2, max_poll_log2 = -2 }]
"""


def follows(kind: str, reading: Reading) -> bool:
    return reading.state == SYNCHRONIZED and reading.reference.identity.startswith(f"{kind}:")


def test_ptp_lost_is_another_source_of_the_same_chronyd(tmp_path: Path) -> None:
    lines = ["local stratum 3", "allow 10.77.0.0/24", "bindaddress 10.77.0.1"]
    with (
        namespaces() as (there, place),
        tempfile.TemporaryDirectory() as folder,
        chronyd(Path(folder) / "server", tuple(there.command()), lines),
        node(place) as here,
    ):
        here.configure("ptp+ntp", extra=BOTH)
        with grandmaster(there, tmp_path / "first"):
            here.start()
            here.wait_for_state(SYNCHRONIZED)
            synchronized_s = time.monotonic() - here.started_mono_s
            ptp = here.wait_for("PTP", lambda reading: follows("ptp", reading), 60)
            ptp_s = time.monotonic() - here.started_mono_s
            pid = here.wait_for_pid("chronyd")
            tight = here.wait_for("bound", lambda reading: reading.relative_bound_ns < 100 * US, 20)
            assert tight.reference.source_name == "PTP0"
            assert tight.source_kind == ptp.source_kind
            assert "STEERING_DENIED" not in codes(tight)
        began = time.monotonic()
        ntp = here.wait_for("NTP", lambda reading: follows("ntp", reading), 60)
        print(
            f"\nmode ptp+ntp: SYNCHRONIZED after {synchronized_s:.1f} s, by PTP after {ptp_s:.1f} s within "
            f"{tight.relative_bound_ns / US:.0f} us, by NTP {time.monotonic() - began:.1f} s after PTP was lost"
        )
        assert ntp.reference.source_name == "10.77.0.1"
        assert {"REFCLOCK_NOT_SELECTED", "INGRESS_STALE"} & codes(ntp)
        with grandmaster(there, tmp_path / "second"):
            back = here.wait_for("PTP again", lambda reading: follows("ptp", reading), 60)
        assert (back.epoch, ntp.epoch) == (ptp.epoch, ptp.epoch)
        assert here.wait_for_pid("chronyd") == pid
        assert here.stop() < 2
        segments = here.machine.read("/proc/sysvipc/shm").splitlines()
        assert len(segments) == 1, "the reference clock's shared memory is freed"
