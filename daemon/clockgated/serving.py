"""The main thread while the daemon serves: waits for signals, has plans made, and switches to them."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from clockgated import __version__, config, host, systemd
from clockgated.config import Config
from clockgated.cycle import Cycle
from clockgated.errors import ConfigError
from clockgated.lease_desk import LeaseDesk
from clockgated.manage.settings import Mode
from clockgated.metrics_room import MetricsRoom
from clockgated.narrator import Narrator
from clockgated.node_room import NodeRoom
from clockgated.signals import Signals
from clockgated.steering.conductor import Conductor
from clockgated.steering.measuring import Hooks, Measuring, open_measuring
from clockgated.steering.policies import lease_limits, state_policy
from clockgated.steering.prepare import Prepared, prepare
from clockgated.steering.signs import SignsOfLife
from clockgated.threads import Background, CycleThread
from clockgated.tuning_room import TuningRoom
from clockgated.units import NS_PER_S

EXIT_BROKEN = 1
CALL_GRACE_S = 0.3

_LOG = logging.getLogger("clockgated")
# A stop has to be over within 2 s: this much for a measurement in flight (chronyc is given up after at most a second,
# and killed) while the time daemons end beside it, the rest for them, for calls and for sockets.
_LAST_CYCLE_S = 1.3
_LAST_STEERING_S = 0.2
_LIVENESS_CHECK_S = 1.0
_PATIENCE_S = 0.05
# While the mode that is asked for cannot run (an interface that is not up yet, another time daemon) planning is tried
# again: soon after a boot, rarely for ever after.
_FIRST_RETRY_NS = 15 * NS_PER_S
_LONGEST_RETRY_NS = 900 * NS_PER_S


@dataclass(frozen=True)
class Parts:
    """What lives as long as the daemon. `lost_socket` says which of the API's sockets no client reaches, and why."""

    cycle: Cycle
    conductor: Conductor
    signs: SignsOfLife
    hooks: Hooks
    desk: LeaseDesk
    narrator: Narrator
    notifier: systemd.Notifier
    boot_id: str
    lost_socket: Callable[[], str | None]
    tuning: TuningRoom
    node: NodeRoom
    metrics: MetricsRoom


def planned(settings: Config, signals: Signals) -> Prepared | None:
    """A plan for `settings`; None when a stop is asked for meanwhile, which does not wait for it.

    Raises ConfigError when there can be none.
    """
    planning = Background(lambda: prepare(settings))
    while not planning.wait(_PATIENCE_S):
        if signals.stop_asked:
            return None
    return planning.result()


def steers(prepared: Prepared) -> bool:
    """Whether daemons of ours steer the clock."""
    return bool(prepared.plan.daemons) and prepared.facts.has_clock_right


class Serving:
    """What is in force, and how it changes."""

    def __init__(
        self, settings: Config, file: Path | None, prepared: Prepared, measuring: Measuring, parts: Parts
    ) -> None:
        self._settings = settings
        self._file = file
        self._prepared = prepared
        self._measuring = measuring
        self._parts = parts
        self._retry = Retry(host.mono_ns())
        self._thread: CycleThread | None = None

    def until_told(self, signals: Signals) -> int:
        """Measure and steer until a signal asks for the end; returns the exit code."""
        parts = self._parts
        self._begin()
        parts.notifier.ready()
        _LOG.info("clockgated %s serves %s", __version__, self._settings.api.socket)
        try:
            while not signals.stop_asked:
                signals.wait(_LIVENESS_CHECK_S)
                if not self._is_alive():
                    return EXIT_BROKEN
                if signals.take_reload():
                    self._reload(signals)
                elif self._wants_plan() and self._retry.is_due(host.mono_ns()):
                    self._plan_again(signals)
            return 0
        finally:
            self._end()

    def _begin(self) -> None:
        """Put what is in force to work."""
        parts, prepared = self._parts, self._prepared
        log_plan(prepared)
        parts.desk.is_enforced = bool(prepared.plan.daemons)
        parts.tuning.follow(self._settings.tuning, prepared.plan)
        parts.node.follow(self._settings)
        parts.metrics.follow(self._settings.metrics)
        parts.signs.route(self._measuring.feeds)
        parts.conductor.carry_out(prepared)
        self._thread = CycleThread(parts.cycle, self._on_cycle)

    def _end(self) -> None:
        parts = self._parts
        parts.notifier.stopping()
        _LOG.info("stopping")
        parts.conductor.end()
        if self._thread is None or self._thread.stop(_LAST_CYCLE_S):
            self._measuring.close()
        if not parts.conductor.join(_LAST_STEERING_S):
            _LOG.warning("time daemons are still being ended; the next start ends or adopts what is left")

    def _on_cycle(self) -> None:
        self._parts.notifier.cycle_finished(self._parts.narrator.tell())

    def _is_alive(self) -> bool:
        if self._thread is not None and not self._thread.is_alive():
            _LOG.error("the measuring thread ended; stopping, so that clients see it")
            return False
        lost = self._parts.lost_socket()
        if lost is not None:
            _LOG.error("%s; stopping, so that the next start serves it again", lost)
            return False
        if not self._parts.conductor.is_alive():
            _LOG.error("the steering thread ended; stopping, so that the next start takes the time daemons up again")
            return False
        return True

    def _reload(self, signals: Signals) -> None:
        """Take a changed configuration into use; on any problem the old one stays."""
        self._parts.notifier.reloading()
        try:
            wanted = self._reloadable(config.load(self._file))
            prepared = planned(wanted, signals)
            if prepared is not None and self._switch(wanted, prepared, signals):
                self._retry = Retry(host.mono_ns())
                _LOG.info("reload: done")
        except ConfigError as error:
            for line in str(error).splitlines():
                _LOG.error("reload: %s", line)
            _LOG.error("reload: refused, the old configuration stays in use")
        finally:
            self._parts.notifier.ready()

    def _reloadable(self, wanted: Config) -> Config:
        now = self._settings
        for section in ("api", "folders"):
            if getattr(wanted, section) != getattr(now, section):
                _LOG.warning("reload: a change in [%s] needs a restart: run `systemctl restart clockgated`", section)
        return replace(wanted, api=now.api, folders=now.folders)

    def _wants_plan(self) -> bool:
        """Whether another plan may be better than the one in force."""
        is_asked = self._settings.clock.mode is not Mode.OBSERVE and self._prepared.facts.is_root
        return self._parts.conductor.needs_plan or (is_asked and not self._prepared.plan.daemons)

    def _plan_again(self, signals: Signals) -> None:
        try:
            prepared = planned(self._settings, signals)
        except ConfigError as error:
            _LOG.error("planning: %s", error)
            prepared = None
        if prepared is not None and (self._parts.conductor.needs_plan or prepared.plan != self._prepared.plan):
            self._switch(self._settings, prepared, signals)
        self._retry.failed(host.mono_ns())

    def _switch(self, wanted: Config, prepared: Prepared, signals: Signals) -> bool:
        """Put another plan and configuration in force; False when a stop is asked for meanwhile."""
        before = self._measuring
        measuring = before
        if not self._is_measured_alike(wanted, prepared):
            measuring = open_measuring(wanted, prepared, self._parts.boot_id, self._parts.hooks)
        # SIGTERM does not wait for a measurement in flight.
        while self._thread is not None and not self._thread.stop(patience_s=0):
            if signals.stop_asked:
                return False
            signals.wait(_PATIENCE_S)
        self._parts.cycle.reconfigure(
            source=measuring.source,
            policy=state_policy(wanted),
            interval_s=wanted.clock.poll_interval_s,
            own_steering=steers(prepared),
            forget=measuring.forget,
        )
        if measuring is not before:
            before.close()
        self._parts.desk.limit(lease_limits(wanted))
        self._settings, self._prepared, self._measuring = wanted, prepared, measuring
        self._begin()
        return True

    def _is_measured_alike(self, wanted: Config, prepared: Prepared) -> bool:
        """Whether the sources may stay: those of PTP remember the last Syncs, and need some to be good again."""
        now = self._prepared
        is_same_plan = prepared.plan == now.plan and steers(prepared) == steers(now)
        return bool(now.plan.ptp) and is_same_plan and wanted == self._settings


class Retry:
    """When planning is tried again, at growing distances; CLOCK_MONOTONIC, ns."""

    def __init__(self, now_mono_ns: int) -> None:
        self._wait_ns = _FIRST_RETRY_NS
        self._due_mono_ns = now_mono_ns + self._wait_ns

    def is_due(self, now_mono_ns: int) -> bool:
        """Whether it is time."""
        return now_mono_ns >= self._due_mono_ns

    def failed(self, now_mono_ns: int) -> None:
        """It was tried; the next time is twice as far away."""
        self._wait_ns = min(2 * self._wait_ns, _LONGEST_RETRY_NS)
        self._due_mono_ns = now_mono_ns + self._wait_ns


def log_plan(prepared: Prepared) -> None:
    """Tell what was planned and why, in the log."""
    plan = prepared.plan
    for reason in plan.reasons:
        _LOG.info("plan: mode %s: %s: %s", plan.mode, reason.code, reason.detail)
    for warning in plan.warnings:
        _LOG.warning("plan: %s", warning)
