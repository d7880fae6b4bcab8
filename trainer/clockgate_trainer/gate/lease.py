"""The job's no-step lease on its node: a stream to the daemon that is kept open for as long as this process lives.

While it is open the daemon lets nothing that it manages step the clock. A lease is a courtesy: without one training
goes on, and a person is told. It ends with the process, however that ends, since the stream does.
"""

import threading
from collections import deque
from dataclasses import dataclass

import grpc
from clockgate.v1 import gate_pb2, gate_pb2_grpc

from clockgate_trainer.gate.status import status_of, text_of

_STATUS = grpc.StatusCode
# A stream that broke with its daemon is wanted back within two seconds of the daemon's return. A full book and an
# operator's break last for minutes: asking once in a while is enough, and does not press.
_REOPEN_S = 0.2
_REFUSED_S = 10.0
# The same question would get the same answer for ever.
_FINAL = (_STATUS.INVALID_ARGUMENT, _STATUS.UNIMPLEMENTED)
_JOIN_S = 2.0
_MOST_NOTICES = 100


@dataclass(frozen=True)
class Notice:
    """Something about the daemon that a person should know: `level` is INFO or WARNING, `event` names its kind."""

    event: str
    level: str
    detail: str


class LeaseKeeper:
    """Keeps a lease for `rank` of `job` by `channel`, in a thread of its own that starts at once.

    `close` first, then the channel: the daemon then hears of the end at once.
    """

    def __init__(self, channel: grpc.Channel, *, job: str, rank: int) -> None:
        self._register = gate_pb2_grpc.GateStub(channel).RegisterJob
        self._request = gate_pb2.RegisterJobRequest(job=job, rank=rank)
        self._who = f"job {job}, rank {rank}"
        self._closing = threading.Event()
        self._call: grpc.Call | None = None
        self._told = ""
        self._notices: deque[Notice] = deque(maxlen=_MOST_NOTICES)
        self.lease: gate_pb2.Lease | None = None
        self._thread = threading.Thread(target=self._keep, name="clockgate-lease", daemon=True)
        self._thread.start()

    def take_notices(self) -> tuple[Notice, ...]:
        """What happened since the last call: leases opened, refused and lost, each told once until it changes."""
        taken = []
        while self._notices:
            taken.append(self._notices.popleft())
        return tuple(taken)

    def close(self) -> None:
        """Give the lease back; waits 2 s at most. May be called twice."""
        self._closing.set()
        call = self._call
        if call is not None:
            call.cancel()  # type: ignore[no-untyped-call]  # the stubs leave its result out
        self._thread.join(_JOIN_S)

    def _keep(self) -> None:
        while not self._closing.is_set():
            pause_s: float | None = _REOPEN_S
            try:
                # The stream of one request ends at once on our side; the lease lasts until the daemon's side ends.
                call = self._register(iter((self._request,)))
                self._call = call
                if self._closing.is_set():
                    # close() may have looked before there was a call.
                    call.cancel()  # type: ignore[no-untyped-call]  # as above
                for answer in call:
                    self._opened(answer)
            except grpc.RpcError as error:
                pause_s = self._ended(error)
            except ValueError:
                break  # the channel was closed under us
            finally:
                self.lease = None
            if pause_s is None:
                break
            self._closing.wait(pause_s)

    def _opened(self, answer: gate_pb2.RegisterJobResponse) -> None:
        self.lease = answer.lease
        force = "" if answer.is_enforced else "; this daemon does not steer the clock, so a step would only be reported"
        self._tell("lease_opened", "INFO", f"lease {answer.lease.lease_id} is open for {self._who}{force}")

    def _ended(self, error: grpc.RpcError) -> float | None:
        """Take note of a stream's end; seconds until the next attempt, None for never."""
        status = status_of(error)
        if self._closing.is_set() or status is _STATUS.UNAVAILABLE:
            return _REOPEN_S  # the daemon is away: that is told by the readings that do not come
        if status is _STATUS.UNIMPLEMENTED:
            self._tell("lease_unknown", "INFO", "this clock daemon knows no leases; training goes on without one")
            return None
        had = self.lease is not None
        event, what = ("lease_lost", "lost its lease") if had else ("lease_refused", "got no lease")
        name = "no status" if status is None else status.name
        detail = f"{self._who} {what} ({name}: {text_of(error)}); training goes on, the clock may be stepped under it"
        self._tell(event, "WARNING", detail)
        if status in _FINAL:
            return None
        return _REOPEN_S if had else _REFUSED_S

    def _tell(self, event: str, level: str, detail: str) -> None:
        if self._told == event:
            return
        self._told = event
        self._notices.append(Notice(event, level, detail))
