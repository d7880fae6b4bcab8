"""The steward's thread: orders come from any thread, what it found is read by any.

Not the thread that measures: systemctl may take seconds, and a reading would expire meanwhile; and a measurement that
hangs must not keep a dead daemon from being started again.
"""

import threading

from clockgated.clock.model import Reason
from clockgated.steering.prepare import Prepared
from clockgated.steering.steward import Steward, Told
from clockgated.supervise.base import ChildStatus

_STEP_S = 1.0


class Conductor:
    """Carries out the newest order, then steps once a second while anything runs; until `end`."""

    def __init__(self, steward: Steward) -> None:
        self._steward = steward
        self._order: Prepared | None = None
        self._told = Told()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._is_ending = False
        # A daemon thread: a systemctl that hangs must not keep the process alive after SIGTERM.
        self._thread = threading.Thread(target=self._run, name="steering", daemon=True)
        self._thread.start()

    def carry_out(self, prepared: Prepared) -> None:
        """Make `prepared` what runs, soon. An order that was not begun yet is replaced."""
        with self._lock:
            self._order = prepared
        self._wake.set()

    def reasons(self) -> tuple[Reason, ...]:
        """What is wrong with what should run."""
        return self._told.reasons

    def children(self) -> tuple[ChildStatus, ...]:
        """How the time daemons of ours fared at the last step."""
        return self._told.status.children

    def pid_of(self, name: str) -> int | None:
        """The process of a daemon at the last step; None while it does not run."""
        return next((child.pid for child in self._told.status.children if child.name == name), None)

    @property
    def needs_plan(self) -> bool:
        """Whether the newest order failed, or changed the host so that another plan is due."""
        with self._lock:
            return self._order is None and self._told.needs_plan

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def end(self) -> None:
        """Ask the steward to leave; does not wait."""
        self._is_ending = True
        self._wake.set()

    def join(self, patience_s: float) -> bool:
        """Wait for it to have left; False when that takes longer."""
        self._thread.join(patience_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._is_ending:
            self._wake.clear()
            with self._lock:
                order, self._order = self._order, None
            if order is not None:
                self._steward.carry_out(order)
            self._told = self._steward.step()
            self._wake.wait(_STEP_S if self._told.runs_anything else None)
        self._steward.end()
