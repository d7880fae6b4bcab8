"""The rank's line to its clock daemon: quiet threads that keep the newest answer at hand, and the job's lease.

The training thread never waits here: it drops a question and reads what is known. A daemon that is absent, frozen,
restarted or talking nonsense is an answer too, in the words of `gate.policy`.
"""

import logging
import threading
from dataclasses import dataclass, replace
from typing import Protocol

import grpc
from clockgate.dial import Tls, open_channel, parse_address
from clockgate.v1 import clock_pb2, clock_pb2_grpc, gate_pb2, gate_pb2_grpc

from clockgate_trainer.gate.clocks import boot_id, boot_ns, mono_ns
from clockgate_trainer.gate.lease import LeaseKeeper, Notice
from clockgate_trainer.gate.model import Limits, SaveVerdict, StepVerdict
from clockgate_trainer.gate.policy import NS_PER_S, Evidence, LocalVerdict, OnUnknown, judge_local
from clockgate_trainer.gate.status import status_of

_log = logging.getLogger(__name__)

_CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A channel of its own: a second one in this process must not inherit this one's back-off.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
# A stream that broke with its daemon is wanted back soon; one that was refused (too many of them) is not pressed for.
_REOPEN_S = 0.2
_REFUSED_S = 2.0
# The stream brings a reading at least once a second. When it does not (too many streams, a dead line), Check is asked
# unbidden at this pace, so that a long step does not outlive its evidence.
_IDLE_ASK_S = 1.0
# A lease ends 600 s after the last Check: one long step (a compilation, an evaluation) must not cost it.
_RENEW_S = 60.0
_JOIN_S = 2.0


class ClockSide(Protocol):
    """What the gate wants from whoever knows the local clock. Nothing here blocks, except `await_answer`."""

    def ask(self, step: int) -> None:
        """Ask for a verdict on `step`; 0 at launch."""

    def verdict(self, now_boot_ns: int, on_unknown: OnUnknown) -> LocalVerdict:
        """The rank's verdict now, from the newest evidence."""

    def await_answer(self, timeout_s: float) -> bool:
        """Wait until a daemon has answered once; False when none did in time. For the check at launch only."""

    def reached(self) -> bool:
        """Whether a daemon has ever answered."""

    def take_notices(self) -> tuple[Notice, ...]:
        """What a person should know about the daemon and has not been told yet."""

    def close(self) -> None:
        """Stop asking. May be called twice."""


class NullSidecar:
    """The side of `--time_sync_check false`: no daemon is asked, nothing is known, nothing is held.

    Saves are untimed, since there is no clock evidence to agree on a time with.
    """

    def ask(self, step: int) -> None:
        """Do nothing."""

    def verdict(self, now_boot_ns: int, on_unknown: OnUnknown) -> LocalVerdict:
        """PROCEED and SAVE_UNTIMED, always."""
        return LocalVerdict(
            step=StepVerdict.PROCEED,
            save=SaveVerdict.SAVE_UNTIMED,
            reasons=0,
            relative_bound_ns=None,
            utc_bound_ns=None,
            reference_hash=None,
            epoch=None,
            detail="time_sync_check is off",
        )

    def await_answer(self, timeout_s: float) -> bool:
        """Nobody will ever answer: False at once."""
        return False

    def reached(self) -> bool:
        """Never."""
        return False

    def take_notices(self) -> tuple[Notice, ...]:
        """Nothing ever."""
        return ()

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class _Known:
    """What the threads share: replaced as a whole, so readers need no lock.

    `silent` is true from a failed question until the daemon says anything again.
    """

    evidence: Evidence | None = None
    received_mono_ns: int = 0
    silent: bool = False


class Sidecar:
    """Asks one daemon for one rank. `address` is a gRPC target (see `gate.address`); threads start at once.

    `deadline_s` bounds each Check: a daemon that needs longer counts as silent for this question. `with_lease` keeps a
    lease open for this rank and its job: one rank of a node is enough, and a daemon has few streams. `tls` is what a
    daemon beyond this machine is called with; its files are read once, here.
    """

    def __init__(
        self,
        address: str,
        limits: Limits,
        *,
        job: str,
        rank: int,
        deadline_s: float = 0.25,
        with_lease: bool = False,
        tls: Tls | None = None,
    ) -> None:
        self._address = address
        self._limits = limits
        self._request = gate_pb2.CheckRequest(
            limits=gate_pb2.Limits(warn_ns=limits.warn_ns, hold_ns=limits.hold_ns), job=job, rank=rank
        )
        self._deadline_s = deadline_s
        self._boot_id = boot_id()
        # Of the last answered Check. Before the first one the deadline is the longest that it can have been.
        self._round_trip_ns = int(deadline_s * NS_PER_S)
        self._known = _Known()
        self._asked_mono_ns = mono_ns()
        self._publishing = threading.Lock()
        self._answered = threading.Event()
        self._closing = threading.Event()
        self._question = threading.Condition()
        self._step = 0
        self._asked = False
        self._channel = open_channel(parse_address(address), tls or Tls(), _CHANNEL_OPTIONS)
        self._threads = [
            threading.Thread(target=run, name=f"clockgate-{name}", daemon=True)
            for name, run in (("ask", self._keep_asking), ("watch", self._keep_watching))
        ]
        self._lease = LeaseKeeper(self._channel, job=job, rank=rank) if with_lease else None
        for thread in self._threads:
            thread.start()

    def ask(self, step: int) -> None:
        """Have Gate.Check sent for `step`; returns at once. A newer question replaces one not yet sent."""
        with self._question:
            self._step = step
            self._asked = True
            self._question.notify()

    def verdict(self, now_boot_ns: int, on_unknown: OnUnknown) -> LocalVerdict:
        """The rank's verdict at `now_boot_ns` from the newest answer or the aged last reading; returns at once."""
        known = self._known
        return judge_local(
            known.evidence,
            silent=known.silent,
            now_boot_ns=now_boot_ns,
            limits=self._limits,
            on_unknown=on_unknown,
        )

    def await_answer(self, timeout_s: float) -> bool:
        """Wait until the daemon has answered once; False when it did not within `timeout_s`."""
        return self._answered.wait(timeout_s)

    def reached(self) -> bool:
        """Whether the daemon has ever answered."""
        return self._answered.is_set()

    def take_notices(self) -> tuple[Notice, ...]:
        """What happened to the lease since the last call."""
        return () if self._lease is None else self._lease.take_notices()

    def close(self) -> None:
        """Give the lease back, end all threads and the channel; waits 2 s for each at most. May be called twice."""
        self._closing.set()
        if self._lease is not None:
            self._lease.close()
        with self._question:
            self._question.notify()
        self._channel.close()
        for thread in self._threads:
            thread.join(_JOIN_S)

    def _keep_asking(self) -> None:
        check = gate_pb2_grpc.GateStub(self._channel).Check
        while not self._closing.is_set():
            step = self._next_question()
            if step is None:
                continue
            request = gate_pb2.CheckRequest()
            request.CopyFrom(self._request)
            request.step = step
            asked_boot_ns = boot_ns()
            self._asked_mono_ns = mono_ns()
            try:
                answer = check(request, timeout=self._deadline_s)
            except grpc.RpcError as error:
                self._note_silence("Gate.Check", error)
            except ValueError:
                break  # the channel was closed under us
            else:
                received_boot_ns = boot_ns()
                self._round_trip_ns = received_boot_ns - asked_boot_ns
                self._publish(answer.reading, received_boot_ns, answer)

    def _next_question(self) -> int | None:
        """Wait for a question; the step to ask about, or None when there is no need to ask."""
        with self._question:
            if not self._asked and not self._closing.is_set():
                self._question.wait(_IDLE_ASK_S)
            asked, self._asked = self._asked, False
            step = self._step
        now_mono_ns = mono_ns()
        stale = now_mono_ns - self._known.received_mono_ns > int(_IDLE_ASK_S * NS_PER_S)
        renew = self._lease is not None and now_mono_ns - self._asked_mono_ns > int(_RENEW_S * NS_PER_S)
        return step if not self._closing.is_set() and (asked or stale or renew) else None

    def _keep_watching(self) -> None:
        watch = clock_pb2_grpc.ClockStub(self._channel).WatchReadings
        while not self._closing.is_set():
            pause_s = _REOPEN_S
            try:
                for message in watch(clock_pb2.WatchReadingsRequest()):
                    self._publish(message.reading, boot_ns(), None)
            except grpc.RpcError as error:
                if status_of(error) is grpc.StatusCode.UNAVAILABLE:
                    self._note_silence("Clock.WatchReadings", error)
                else:
                    pause_s = _REFUSED_S  # no sign of a silent daemon: Check tells
            except ValueError:
                break  # the channel was closed under us
            self._closing.wait(pause_s)

    def _publish(
        self, reading: clock_pb2.Reading, received_boot_ns: int, answer: gate_pb2.CheckResponse | None
    ) -> None:
        with self._publishing:
            before = self._known.evidence
            if answer is None and before is not None and _is_same(before.reading, reading):
                answer = before.answer
            evidence = Evidence(
                reading=reading,
                received_boot_ns=received_boot_ns,
                round_trip_ns=self._round_trip_ns,
                same_boot=reading.boot_id == self._boot_id,
                answer=answer,
            )
            if self._known.silent:
                _log.info("clock daemon at %s answers again", self._address)
            self._known = _Known(evidence=evidence, received_mono_ns=mono_ns(), silent=False)
        self._answered.set()

    def _note_silence(self, method: str, error: grpc.RpcError) -> None:
        with self._publishing:
            if not self._known.silent and not self._closing.is_set():
                _log.info("clock daemon at %s does not answer %s: %s", self._address, method, status_of(error))
            self._known = replace(self._known, silent=True)


def _is_same(one: clock_pb2.Reading, other: clock_pb2.Reading) -> bool:
    return (one.boot_id, one.epoch, one.sequence) == (other.boot_id, other.epoch, other.sequence)
