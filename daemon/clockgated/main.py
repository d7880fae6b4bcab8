"""clockgated: parse, load, wire, run, exit code. The only file that knows all concrete parts.

The main thread waits for signals, one thread measures, the API's own threads answer. Exit codes: 0 stopped as asked,
1 the measuring thread ended, 2 usage, 78 configuration or sockets.
"""

import argparse
import logging
import math
import os
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from clockgated import __version__, config, host, systemd, units
from clockgated.clock.bound import BoundPolicy
from clockgated.clock.model import SourceKind
from clockgated.clock.state import StatePolicy, reading_of, start
from clockgated.config import Config
from clockgated.cycle import Cycle
from clockgated.drill import DrillBoard
from clockgated.errors import EXIT_CONFIG, ClockgateError, ConfigError
from clockgated.narrator import Narrator
from clockgated.publish import Publisher
from clockgated.service.server import Api
from clockgated.signals import Signals
from clockgated.sources.base import Source
from clockgated.sources.chronyc import ChronycSource
from clockgated.sources.kernel import KernelSource
from clockgated.sources.recorded import RecordedSource

EXIT_CYCLE_ENDED = 1

_LOG = logging.getLogger("clockgated")
# A stop has to be over within 2 s: this much for a measurement in flight (chronyc is given up after at most a second,
# and killed), the rest for calls and sockets.
_LAST_CYCLE_S = 1.3
_CALL_GRACE_S = 0.3
_LIVENESS_CHECK_S = 1.0
_DRAIN_CHECK_S = 0.05


def main(argv: list[str] | None = None) -> int:
    """Run the daemon, or check its configuration; returns the exit code. argparse ends the process on wrong usage."""
    options = _parser().parse_args(argv)
    try:
        settings = config.load(options.config)
        if options.check:
            open_source(settings, host.boot_id())
            print("ok")
            return 0
        systemd.set_up_logging(options.log_level, os.environ)
        return Daemon(settings, options.config, systemd.notifier(os.environ)).run()
    except ClockgateError as error:
        for line in str(error).splitlines():
            print(f"clockgated: {line}", file=sys.stderr)
        return EXIT_CONFIG


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="clockgated", description="Keeps this node's clock within a stated bound, and serves that bound."
    )
    parser.add_argument("--version", action="version", version=f"clockgated {__version__}")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help=f"default: {config.DEFAULT_FILE} if there is one, else the defaults"
    )
    parser.add_argument("--check", action="store_true", help="validate the configuration, print ok or all problems")
    parser.add_argument("--log-level", choices=systemd.LOG_LEVELS, default="info")
    return parser


class Daemon:
    """One run of the daemon. SIGTERM and SIGINT end it, SIGHUP reads the configuration again."""

    def __init__(self, settings: Config, file: Path | None, notifier: systemd.Notifier) -> None:
        self._settings = settings
        self._file = file
        self._notifier = notifier
        boot_id = host.boot_id()
        source, policy = open_source(settings, boot_id), state_policy(settings)
        self._boot_id = boot_id
        # Nobody watched the clock before this start, so it begins an epoch. Seconds of uptime exceed every earlier one
        # of this boot: an epoch rises by one at most in a cycle.
        now_boot_ns = host.boot_ns()
        track = start(source.kind, now_boot_ns, epoch=max(1, now_boot_ns // units.NS_PER_S))
        self._publisher = Publisher(reading_of(track, boot_id, policy))
        self._board = DrillBoard()
        self._cycle = Cycle(
            source=source,
            publisher=self._publisher,
            drills=self._board,
            policy=policy,
            boot_id=boot_id,
            interval_s=settings.clock.poll_interval_s,
        )
        self._narrator = Narrator(self._publisher.latest)

    def run(self) -> int:
        """Serve until told to stop; returns the exit code. Raises SocketError when the API cannot be served."""
        with closing(Signals()) as signals:
            return self._serve(signals)

    def _serve(self, signals: Signals) -> int:
        # Before any other thread: the modes of its sockets come from the process's umask.
        api = Api(self._settings.api, self._publisher, self._board)
        thread = CycleThread(self._cycle, self._on_cycle)
        self._notifier.ready()
        _LOG.info("clockgated %s serves %s", __version__, self._settings.api.socket)
        try:
            while not signals.stop_asked:
                signals.wait(_LIVENESS_CHECK_S)
                if not thread.is_alive():
                    _LOG.error("the measuring thread ended; stopping, so that clients see it")
                    return EXIT_CYCLE_ENDED
                if signals.take_reload():
                    thread = self._reload(thread, signals)
            return 0
        finally:
            self._notifier.stopping()
            _LOG.info("stopping")
            thread.stop(_LAST_CYCLE_S)
            api.stop(_CALL_GRACE_S)

    def _on_cycle(self) -> None:
        self._notifier.cycle_finished(self._narrator.tell())

    def _reload(self, thread: "CycleThread", signals: Signals) -> "CycleThread":
        """Take a changed configuration into use; on any problem the old one stays. Returns the measuring thread."""
        self._notifier.reloading()
        try:
            return self._reconfigured(config.load(self._file), thread, signals)
        except ConfigError as error:
            for line in str(error).splitlines():
                _LOG.error("reload: %s", line)
            _LOG.error("reload: refused, the old configuration stays in use")
            return thread
        finally:
            self._notifier.ready()

    def _reconfigured(self, wanted: Config, thread: "CycleThread", signals: Signals) -> "CycleThread":
        if wanted.api != self._settings.api:
            _LOG.warning("reload: a change in [api] needs a restart: run `systemctl restart clockgated`")
            wanted = replace(wanted, api=self._settings.api)
        source = open_source(wanted, self._boot_id)
        # SIGTERM does not wait for a measurement in flight.
        while not thread.stop(patience_s=0):
            if signals.stop_asked:
                return thread
            signals.wait(_DRAIN_CHECK_S)
        self._cycle.reconfigure(source=source, policy=state_policy(wanted), interval_s=wanted.clock.poll_interval_s)
        self._settings = wanted
        _LOG.info("reload: done")
        return CycleThread(self._cycle, self._on_cycle)


class CycleThread:
    """The thread that measures, from construction until `stop`."""

    def __init__(self, cycle: Cycle, on_cycle: Callable[[], None]) -> None:
        self._stop = threading.Event()
        # A daemon thread: a measurement that hangs must not keep the process alive after SIGTERM.
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


def choose_source(settings: Config, *, chrony_socket_exists: bool) -> SourceKind:
    """The source to read: the one that is named, or for "auto" chrony where its socket exists, else the kernel."""
    match settings.clock.source:
        case "recorded":
            return SourceKind.RECORDED
        case "chrony":
            return SourceKind.CHRONY
        case "kernel":
            return SourceKind.KERNEL
        case _:
            return SourceKind.CHRONY if chrony_socket_exists else SourceKind.KERNEL


def open_source(settings: Config, boot_id: str) -> Source:
    """The source that the configuration asks for. Raises ConfigError when a recording cannot be used."""
    chrony = settings.chrony
    # os.path: a folder that may not be entered counts as one without a socket, where Path.exists raises.
    exists = os.path.exists(chrony.socket)  # noqa: PTH110
    kind = choose_source(settings, chrony_socket_exists=exists)
    _LOG.info('source %s ([clock] source is "%s")', kind.name.lower(), settings.clock.source)
    match kind:
        case SourceKind.CHRONY:
            return ChronycSource(
                chrony.socket, bound_policy(settings), boot_id, timeout_s=chrony.timeout_s, program=chrony.chronyc
            )
        case SourceKind.KERNEL:
            return KernelSource()
        case SourceKind.RECORDED:
            if settings.recorded.file is None:
                raise ConfigError('[recorded] file = "": wanted the path of a recording')
            return RecordedSource(settings.recorded.file)


def bound_policy(settings: Config) -> BoundPolicy:
    """What the bound assumes, in the units of the clock room."""
    return BoundPolicy(
        max_drift_ppb=units.ppb_from_ppm(settings.clock.max_drift_ppm),
        # Rounded down: what chronyd covers already is taken off what we add.
        assumed_clockerror_ppb=math.floor(settings.chrony.maxclockerror_ppm * units.PPB_PER_PPM),
    )


def state_policy(settings: Config) -> StatePolicy:
    """The limits of the states, in the units of the clock room."""
    clock = settings.clock
    return StatePolicy(
        max_bound_ns=round(clock.max_bound_ms * units.NS_PER_MS),
        sync_cycles=clock.sync_cycles,
        holdover_horizon_ns=round(clock.holdover_horizon_s * units.NS_PER_S),
        reading_ttl_ns=round(clock.reading_ttl_s * units.NS_PER_S),
        growth_ppb=units.ppb_from_ppm(clock.max_drift_ppm),
    )


if __name__ == "__main__":
    sys.exit(main())
