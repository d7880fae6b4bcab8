"""`clockgatectl wait`: wait until the clock is within its limits; with --stay, until it no longer is.

The limits are the daemon's own (`max_bound_ms`): a reading in state SYNCHRONIZED or HOLDOVER that has not expired.
"""

import argparse
import os
import sys
import time
from typing import Any

import grpc

from clockgated import host, systemd, units
from clockgated.ctl import address, ask, status

EXIT_WITHIN = 0
EXIT_OUTSIDE = 1
EXIT_UNREACHABLE = 3

_INTERVAL_S = 1.0


def add(commands: Any) -> None:
    """Add the command to the subparsers of clockgatectl."""
    parser = commands.add_parser(
        "wait",
        help="wait until the clock is within its limits. Exit 0 it is, 1 it is not, 3 the daemon is unreachable",
    )
    parser.add_argument("--timeout", type=_seconds, metavar="S", help="give up after this many seconds; default: never")
    parser.add_argument(
        "--stay", action="store_true", help="stay until the clock leaves its limits, then exit 1; for a unit of systemd"
    )
    parser.add_argument(
        "--grace", type=_seconds, default=0.0, metavar="S", help="with --stay: only when it is outside for that long"
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Wait; returns the exit code. With --stay systemd is told (sd_notify) when the clock is within its limits."""
    path = address.chosen(options, os.environ)
    due_mono_ns = None if options.timeout is None else host.mono_ns() + round(options.timeout * units.NS_PER_S)
    notifier = systemd.notifier(os.environ)
    with address.connect(path) as channel:
        watch = Watch(channel, path)
        while not watch.is_within_limits():
            if due_mono_ns is not None and host.mono_ns() >= due_mono_ns:
                return EXIT_UNREACHABLE if watch.is_unreachable else EXIT_OUTSIDE
            time.sleep(_INTERVAL_S)
        if not options.stay:
            return EXIT_WITHIN
        notifier.ready()
        within_mono_ns, grace_ns = host.mono_ns(), round(options.grace * units.NS_PER_S)
        while (is_within := watch.is_within_limits()) or host.mono_ns() - within_mono_ns < grace_ns:
            if is_within:
                within_mono_ns = host.mono_ns()
            time.sleep(_INTERVAL_S)
    return EXIT_UNREACHABLE if watch.is_unreachable else EXIT_OUTSIDE


class Watch:
    """The newest reading, asked for again at each look. A daemon that is away for less than its lifetime is no loss."""

    def __init__(self, channel: grpc.Channel, path: address.Address) -> None:
        self._channel = channel
        self._path = path
        self._newest: tuple[Any, int] | None = None
        self._told = ""
        self.is_unreachable = False

    def is_within_limits(self) -> bool:
        """Ask, tell a change on stderr, and judge the newest reading there is at the time of now."""
        try:
            reading, now_boot_ns = ask.newest_reading(self._channel, self._path)
            self._newest = reading, now_boot_ns - host.boot_ns()
            self.is_unreachable = False
            self._tell(f"the clock is {status.state_name(reading)}")
        except address.UnreachableError as error:
            self.is_unreachable = True
            self._tell(str(error))
        if self._newest is None:
            return False
        # A daemon in another boot counts from another zero; suspended time counts on both sides.
        reading, ahead_ns = self._newest
        return status.is_usable(reading, host.boot_ns() + ahead_ns)

    def _tell(self, sentence: str) -> None:
        if sentence != self._told:
            print(f"clockgatectl: {sentence}", file=sys.stderr, flush=True)
            self._told = sentence


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f'"{text}" is no number of seconds; wanted 0 or more')
    return value
