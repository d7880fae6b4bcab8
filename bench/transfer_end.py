"""One end of bench/tuning_transfer.py, inside its namespace: plans, applies, gives back, sends and receives.

Commands come as lines on standard input; each is answered by one line of JSON.
"""

import json
import socket
import sys
import time
from pathlib import Path

from clockgated import host
from clockgated.config import TuningConfig
from clockgated.tuning.desk import Outside, Refused, TuningDesk
from clockgated.tuning.host_tools import host_tools
from clockgated.tuning.interlock import ClockLook
from clockgated.tuning.outcome import OutcomeCode
from clockgated.tuning.survey import Surveyor

WITHOUT = {"tcp_rmem": "4096 131072 6291456", "tcp_wmem": "4096 16384 4194304"}
"""Buffers of older kernels; some now begin with larger ones."""
_FOLDER = Path("/proc/sys/net/ipv4")
_PORT, _CHUNK_BYTES = 5001, 1 << 20
_PROFILE = """
extends = "tcp"
summary = "the transfer"
links = ["tun0"]
# Of a device in user space there is nothing else to tune.
fair_queueing = false
channels = false
"""


class End:
    """What this end does on command."""

    def __init__(self, folder: Path, rtt_ms: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "transfer.toml").write_text(_PROFILE)
        settings = TuningConfig(profile="transfer", profile_folder=folder, rtt_ms=rtt_ms)
        self._originals = {name: (_FOLDER / name).read_text() for name in WITHOUT}
        self._desk = TuningDesk(
            settings,
            folder / "tuning",
            survey=Surveyor(settings).survey,
            make_tools=host_tools,
            outside=Outside(lambda: None, ClockLook),
            boot_id=host.boot_id(),
        )

    def plan(self) -> dict[str, object]:
        """The plan from the buffers of older kernels, in words."""
        self.without()
        plan = self._desk.plan(None, None)
        self.back()
        return {
            "congestion_control": (_FOLDER / "tcp_congestion_control").read_text().strip(),
            "bound": plan.bounds[0].sentence if plan.bounds else "not known",
            "changes": [f"{one.knob.subject}: {one.found} -> {one.wanted}" for one in plan.changes],
        }

    def without(self) -> None:
        """The buffers of older kernels."""
        for name, value in WITHOUT.items():
            (_FOLDER / name).write_text(value)

    def with_plan(self) -> None:
        """Plan from there, and apply."""
        self.without()
        outcomes = self._desk.apply(self._desk.plan(None, None).plan_hash, ignore_leases=False)
        assert not isinstance(outcomes, Refused), outcomes
        assert all(one.code is OutcomeCode.APPLIED for one in outcomes), outcomes

    def back(self) -> None:
        """Everything as it was at first."""
        outcomes = self._desk.revert(ignore_leases=False)
        assert not isinstance(outcomes, Refused), outcomes
        assert all(one.code is OutcomeCode.REVERTED for one in outcomes), outcomes
        for name, value in self._originals.items():
            (_FOLDER / name).write_text(value)


def send(size_bytes: int) -> float:
    """Send over a fresh connection; seconds until the other end has told that it has everything."""
    chunk = memoryview(bytes(_CHUNK_BYTES))
    with socket.create_connection(("10.99.0.2", _PORT)) as connection:
        began_s = time.monotonic()
        left = size_bytes
        while left:
            left -= connection.send(chunk[: min(left, _CHUNK_BYTES)])
        connection.recv(1)
        return time.monotonic() - began_s


def receive(size_bytes: int) -> int:
    """Receive from one connection; bytes."""
    buffer = bytearray(_CHUNK_BYTES)
    with socket.create_server(("10.99.0.2", _PORT)) as server:
        connection, _ = server.accept()
        with connection:
            got = 0
            while got < size_bytes and (count := connection.recv_into(buffer)):
                got += count
            connection.send(b"!")
    return got


def answer(end: End, word: str, argument: str) -> object:
    """Carry a command out."""
    match word:
        case "plan":
            return end.plan()
        case "with":
            end.with_plan()
        case "without":
            end.without()
        case "back":
            end.back()
        case "send":
            return send(int(argument))
        case "receive":
            return receive(int(argument))
        case _:
            raise ValueError(f"{word}: no command")
    return None


def main() -> int:
    """Answer commands until the end of standard input."""
    end = End(Path(sys.argv[1]), float(sys.argv[2]))
    for line in sys.stdin:
        word, _, argument = line.strip().partition(" ")
        print(json.dumps(answer(end, word, argument)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
