"""What the zygote forks beside ranks: clock daemons, a parent of ranks, the launcher, a flood of leases."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import clockgated.main
import grpc
from clockgate.v1 import gate_pb2, gate_pb2_grpc
from clockgate_trainer import launch
from support.chaos import rank

_NOT_OURS = ("NOTIFY_SOCKET", "JOURNAL_STREAM", "WATCHDOG_USEC", "WATCHDOG_PID", "CLOCKGATE_ADDRESS")
_FLOODS = 300
FLOOD = "flood-"


def daemon(config: str) -> int:
    """Be a real clockgated, for as long as the zygote lives."""
    signal.alarm(0)
    for name in _NOT_OURS:
        os.environ.pop(name, None)
    return clockgated.main.main(["--config", config, "--log-level", "info"])


def parent(ranks: Sequence[Mapping[str, Any]], notes: str) -> int:
    """Start ranks as an agent does, write their process ids to the file `notes`, and wait for them."""
    pids = [_child(arguments) for arguments in ranks]
    draft = Path(f"{notes}.draft")
    draft.write_text(" ".join(map(str, pids)), encoding="ascii")
    draft.rename(notes)
    for pid in pids:
        os.waitpid(pid, 0)
    return 0


def _child(arguments: Mapping[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        code = rank.forked(**arguments)
    finally:
        sys.stderr.flush()
        os._exit(code)


def launcher(arguments: Sequence[str], folder: str, environment: Mapping[str, str]) -> int:
    """Be `clockgate-train launch` for ranks that train the small model."""
    os.environ.update(environment)
    return launch.run("support.chaos.rank", arguments, folder=Path(folder))


def flood(socket: str) -> int:
    """Open as many leases as the daemon lets anybody have, and keep asking, until killed."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    ended = threading.Event()

    def ask(number: int) -> Iterator[gate_pb2.RegisterJobRequest]:
        yield gate_pb2.RegisterJobRequest(job=f"{FLOOD}{number}", rank=0)
        ended.wait()

    channels = [grpc.insecure_channel(f"unix:{socket}", options=options) for _ in range(4)]
    stubs = [gate_pb2_grpc.GateStub(channel) for channel in channels]
    streams = []
    while True:
        streams += [stubs[number % 4].RegisterJob(ask(number)) for number in range(_FLOODS)]
        time.sleep(0.5)
        for stream in streams:
            stream.cancel()  # type: ignore[no-untyped-call]
        streams.clear()
