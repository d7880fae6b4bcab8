"""The threads of the daemon that are not the API's own: one that measures, and short ones that plan.

All are daemon threads: what hangs in one must not keep the process alive after SIGTERM.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from clockgated.cycle import Cycle

T = TypeVar("T")


class CycleThread:
    """The thread that measures, from construction until `stop`."""

    def __init__(self, cycle: Cycle, on_cycle: Callable[[], None]) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=cycle.run, args=(self._stop, on_cycle), name="cycle", daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether it still measures."""
        return self._thread.is_alive()

    def stop(self, patience_s: float) -> bool:
        """End it after the measurement in flight; False when that takes longer than `patience_s`."""
        self._stop.set()
        self._thread.join(patience_s)
        return not self._thread.is_alive()


class Background(Generic[T]):
    """One call, on a thread of its own, from construction on."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._outcome: tuple[T] | BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="planning", daemon=True)
        self._thread.start()

    def wait(self, patience_s: float) -> bool:
        """Whether it is over, at the latest after `patience_s`."""
        self._thread.join(patience_s)
        return not self._thread.is_alive()

    def result(self) -> T:
        """What the call returned; raises what it raised. Only once it is over."""
        if isinstance(self._outcome, tuple):
            return self._outcome[0]
        assert self._outcome is not None, "asked before the call was over"
        raise self._outcome

    def _run(self) -> None:
        try:
            self._outcome = (self._call(),)
        # Handed on to whoever asks for the result.
        except BaseException as error:  # noqa: BLE001
            self._outcome = error
