"""Calls that wait for their client, and what ends those that wait for too long. Cancelling wakes their worker.

A client that opens a call and sends no message, or takes no answer, would keep a worker and memory for ever.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc

from clockgated import host, units

_MESSAGE_DEADLINE_NS = units.NS_PER_S
# Given to a call that waited for a worker for longer than the deadline, and, while half of the workers wait for
# messages, to every call: its message is there or it never was sent. Where all cores are busy a message that is there
# takes a while to reach the worker all the same: by how much this thread wakes too late is added, this many times over.
_LEAST_PATIENCE_NS = 100 * units.NS_PER_MS
_LATENESSES = 8
_FORGETTING = 0.9
# An answer is small and a client that reads takes it at once; one whose machine is out of breath has this long.
ANSWER_DEADLINE_NS = 10 * units.NS_PER_S
_SWEEP_INTERVAL_NS = 50 * units.NS_PER_MS


@dataclass(frozen=True)
class _Wait:
    """One call's wait; CLOCK_MONOTONIC, ns. `may_hurry`: it may be ended early to make room."""

    since_ns: int
    due_ns: int
    may_hurry: bool


class Sweeper:
    """Cancels what waits for too long, on a thread of its own until `close`. Methods are for any thread."""

    def __init__(self, workers: int, *, answer_deadline_ns: int = ANSWER_DEADLINE_NS) -> None:
        self._crowd = workers // 2
        self._answer_deadline_ns = answer_deadline_ns
        self._lock = threading.Lock()
        self._waits: dict[grpc.ServicerContext, _Wait] = {}
        self._lateness_ns = 0.0
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="admission", daemon=True).start()

    @contextmanager
    def message(self, context: grpc.ServicerContext, arrived_ns: int) -> Iterator[None]:
        """Inside, the call waits for a message: cancelled a second after it arrived."""
        now_ns = host.mono_ns()
        due_ns = max(arrived_ns + _MESSAGE_DEADLINE_NS, now_ns + self._patience_ns())
        with self._waiting(context, _Wait(now_ns, due_ns, may_hurry=True)):
            yield

    @contextmanager
    def answer(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Inside, the call waits until its client takes an answer, of several."""
        with self._waiting(context, self._answer_wait()):
            yield

    def last_answer(self, context: grpc.ServicerContext) -> None:
        """From here until the call is over it waits until its client takes its answer."""
        with self._lock:
            self._waits[context] = self._answer_wait()
        if not context.add_callback(lambda: self._forget(context)):
            self._forget(context)

    def close(self) -> None:
        """End the thread; nothing is cancelled any more."""
        self._closed.set()

    def _patience_ns(self) -> int:
        return min(_LEAST_PATIENCE_NS + round(_LATENESSES * self._lateness_ns), _MESSAGE_DEADLINE_NS)

    def _answer_wait(self) -> _Wait:
        now_ns = host.mono_ns()
        return _Wait(now_ns, now_ns + self._answer_deadline_ns, may_hurry=False)

    @contextmanager
    def _waiting(self, context: grpc.ServicerContext, wait: _Wait) -> Iterator[None]:
        with self._lock:
            self._waits[context] = wait
        try:
            yield
        finally:
            self._forget(context)

    def _forget(self, context: grpc.ServicerContext) -> None:
        with self._lock:
            self._waits.pop(context, None)

    def _run(self) -> None:
        due_ns = host.mono_ns() + _SWEEP_INTERVAL_NS
        while not self._closed.wait(_SWEEP_INTERVAL_NS / units.NS_PER_S):
            with self._lock:
                waits = dict(self._waits)
            now_ns = host.mono_ns()
            self._lateness_ns = max(now_ns - due_ns, _FORGETTING * self._lateness_ns)
            due_ns = now_ns + _SWEEP_INTERVAL_NS
            for context in self._overdue(waits, now_ns):
                # Looked at once more: one whose message came meanwhile is being answered.
                with self._lock:
                    if self._waits.get(context) is waits[context]:
                        context.cancel()  # type: ignore[no-untyped-call]  # the stubs leave its result out

    def _overdue(self, waits: dict[grpc.ServicerContext, _Wait], now_ns: int) -> Iterator[grpc.ServicerContext]:
        is_crowded = sum(wait.may_hurry for wait in waits.values()) > self._crowd
        patience_ns = self._patience_ns()
        for context, wait in waits.items():
            hurries = is_crowded and wait.may_hurry and wait.since_ns + patience_ns < now_ns
            if hurries or wait.due_ns < now_ns:
                yield context
