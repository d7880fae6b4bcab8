"""The thread that compares what was applied with what is: when a link changes, and every minute whatever happens.

The kernel tells about links, queueing disciplines and driver settings; about files below /proc/sys it tells nothing.
"""

import logging
import select
import socket
import threading
import time
from collections.abc import Callable

_LOG = logging.getLogger(__name__)
_RTMGRP_LINK, _RTMGRP_TC = 1, 8  # linux/rtnetlink.h
_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP, _NETLINK_GENERIC = 270, 1, 16  # linux/netlink.h
_SETTLE_S = 0.3
"""One change sends several messages, and a driver's settings are read best when it is done."""
_LEAST_PAUSE_S = 1.0
"""Between two comparisons: a flapping link must not keep a processor busy."""
_MOST_BYTES = 1 << 16


class DriftWatch:
    """Calls `look` on news and every `poll_s`, from `start` until `stop`; `look` says whether anything is in force.

    `ethtool_group` is asked once something is: it costs the loading of netlink. Neither may raise.
    """

    def __init__(self, look: Callable[[], bool], poll_s: float, ethtool_group: Callable[[], int | None]) -> None:
        self._look = look
        self.poll_s = poll_s
        self._ethtool_group: Callable[[], int | None] | None = ethtool_group
        self._ears = listen(socket.NETLINK_ROUTE, groups=_RTMGRP_LINK | _RTMGRP_TC)
        self._wake_out, self._wake_in = socket.socketpair()
        self._stopping = threading.Event()
        # A daemon thread: what hangs in a driver must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="tuning", daemon=True)

    def start(self) -> None:
        """Begin with a first comparison."""
        self._thread.start()

    def look_soon(self) -> None:
        """Compare in a moment."""
        self._wake_in.send(b"!")

    def stop(self, patience_s: float) -> bool:
        """End it after the comparison in hand; False when that takes longer than `patience_s`."""
        self._stopping.set()
        self.look_soon()
        if self._thread.is_alive():
            self._thread.join(patience_s)
        if self._thread.is_alive():
            return False
        for one in (*self._ears, self._wake_in, self._wake_out):
            one.close()
        return True

    def _run(self) -> None:
        while not self._stopping.is_set():
            began_s = time.monotonic()
            if self._look() and self._ethtool_group is not None:
                self._ears += listen(_NETLINK_GENERIC, member_of=self._ethtool_group())
                self._ethtool_group = None
            self._await_news(began_s + self.poll_s)
            self._stopping.wait(max(_SETTLE_S, began_s + _LEAST_PAUSE_S - time.monotonic()))
            self._drain()

    def _await_news(self, due_s: float) -> None:
        select.select([*self._ears, self._wake_out], [], [], max(0.0, due_s - time.monotonic()))

    def _drain(self) -> None:
        for one in (*self._ears, self._wake_out):
            while select.select([one], [], [], 0)[0]:
                try:
                    one.recv(_MOST_BYTES)
                except OSError:
                    # Too much news to keep: it is all looked at anyhow.
                    break


def listen(family: int, *, groups: int = 0, member_of: int | None = None) -> tuple[socket.socket, ...]:
    """A socket that becomes readable when the kernel tells of a change; none where it cannot be had."""
    if not groups and member_of is None:
        return ()
    try:
        ear = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, family)
    except OSError as error:
        _LOG.warning("tuning: changes of links are not heard of (%s), only seen by polling", error.strerror)
        return ()
    try:
        ear.bind((0, groups))
        if member_of is not None:
            ear.setsockopt(_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP, member_of)
    except OSError as error:
        ear.close()
        _LOG.warning("tuning: changes of links are not heard of (%s), only seen by polling", error.strerror)
        return ()
    return (ear,)
