"""The signals that the daemon listens to, as flags that its main thread looks at."""

import select
import signal
import socket


class Signals:
    """Signals as flags. Handlers only set them: anything with a lock could wait for the very thread it interrupted.

    The wake-up descriptor ends the main thread's wait at once.
    """

    def __init__(self) -> None:
        self.stop_asked = False
        self._reload_asked = False
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note)

    def wait(self, timeout_s: float) -> None:
        """Return at the next signal, or after `timeout_s`."""
        ready, _, _ = select.select([self._wake_reader], [], [], timeout_s)
        if ready:
            self._wake_reader.recv(4096)

    def close(self) -> None:
        """Wake nobody any more; the handlers stay."""
        signal.set_wakeup_fd(-1)
        self._wake_reader.close()
        self._wake_writer.close()

    def take_reload(self) -> bool:
        """Whether a reload was asked for since the last call."""
        asked, self._reload_asked = self._reload_asked, False
        return asked

    def _note(self, number: int, frame: object) -> None:
        if number == signal.SIGHUP:
            self._reload_asked = True
        else:
            self.stop_asked = True
