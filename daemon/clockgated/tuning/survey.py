"""One look at the node, and the plan that follows: what `Tuning.Plan` and `Tuning.Apply` are answered from."""

import logging
import threading
from dataclasses import dataclass

from clockgated import host
from clockgated.config import TuningConfig
from clockgated.errors import ConfigError
from clockgated.tuning import rtt
from clockgated.tuning.choose import choose
from clockgated.tuning.counters import all_counters
from clockgated.tuning.facts import Facts, PathTime
from clockgated.tuning.history import CounterHistory, Sample
from clockgated.tuning.model import Plan
from clockgated.tuning.planner import make_plan
from clockgated.tuning.profile import AUTO, Profile, load
from clockgated.tuning.roots import Roots
from clockgated.tuning.rules.base import counters_of
from clockgated.units import NS_PER_S

_LOG = logging.getLogger(__name__)
_US_PER_MS = 1000
_PATH_LASTS_NS = 600 * NS_PER_S
"""A measured path holds that long: else a plan and its apply would be sized from two measurements, and differ."""


@dataclass(frozen=True)
class _Measured:
    path: PathTime
    at_mono_ns: int


class Surveyor:
    """Plans on request. Remembers counters of the last hour, and the path to the peers for ten minutes.

    Safe to call from several threads: one survey at a time.
    """

    def __init__(self, settings: TuningConfig, roots: Roots | None = None) -> None:
        self._settings = settings
        self._roots = roots or Roots()
        self._lock = threading.Lock()
        self._measured: _Measured | None = None
        self._history = CounterHistory()
        self._raised: dict[str, object] | None = None
        self.sample()
        _tell_of_mistakes(settings)

    def reconfigure(self, settings: TuningConfig) -> None:
        """Take other settings into use; what is remembered of the path is forgotten."""
        with self._lock:
            self._settings, self._measured = settings, None
        _tell_of_mistakes(settings)

    def sample(self) -> None:
        """Remember the counters, if it is time again; cheap, to be called about once a minute."""
        with self._lock:
            now_mono_ns = host.mono_ns()
            if self._history.is_due(now_mono_ns):
                self._history.note(Sample(now_mono_ns, all_counters(self._roots)))

    def survey(self, profile: str | None = None, rtt_ms: float | None = None) -> Plan:
        """Look and plan. `profile` and `rtt_ms` stand in for the configured ones; "auto" chooses.

        Raises ConfigError when there is no such profile, or its file is wrong, and another ClockgateError when the
        kernel does not answer.
        """
        with self._lock:
            settings = self._settings
            asked = profile if profile is not None else settings.profile
            chosen = None if asked == AUTO else load(asked, settings.profile_folder)
            path = self._path(rtt_ms if rtt_ms is not None else settings.rtt_ms)
            # pyroute2 costs 0.3 s of CPU to import, which a daemon that is never asked for a plan need not pay.
            from clockgated.tuning.gather import gather  # noqa: PLC0415

            facts = gather(self._roots, path, chosen)
            why = "asked for" if profile is not None else "configured"
            if chosen is None:
                name, because = choose(facts)
                chosen, why = load(name, settings.profile_folder), f"chosen: {because}"
            return make_plan(facts, chosen, why, *self._grown(facts))

    def _grown(self, facts: Facts) -> tuple[dict[str, int], float]:
        """The counters that growth is told from, and their age."""
        now_mono_ns = host.mono_ns()
        sample, raised = Sample(now_mono_ns, counters_of(facts)), raised_by_counters(facts)
        if self._raised is not None and raised != self._raised:
            self._history.restart(sample)
        self._raised = raised
        before = self._history.before(now_mono_ns)
        self._history.note(sample)
        return before

    def _path(self, told_ms: float | None) -> PathTime | None:
        if told_ms is not None:
            return PathTime(round(told_ms * _US_PER_MS), "told")
        now_mono_ns = host.mono_ns()
        if self._measured is None or now_mono_ns - self._measured.at_mono_ns > _PATH_LASTS_NS:
            path = rtt.measure(self._settings.peers)
            # Silence is not remembered: the peers may be up in a moment.
            self._measured = None if path is None else _Measured(path, now_mono_ns)
        return None if self._measured is None else self._measured.path


def raised_by_counters(facts: Facts) -> dict[str, object]:
    """The settings that counters ask for, as they are: once one moved, older counts speak no more for it."""
    keys = ("net.core.netdev_max_backlog", "net.core.netdev_budget", "net.core.netdev_budget_usecs")
    return {key: facts.sysctl(key) for key in keys} | {link.name: link.rings for link in facts.links}


def check_profile(settings: TuningConfig) -> Profile | None:
    """The configured profile, None for "auto". Raises ConfigError when there is none, or its file is wrong."""
    return None if settings.profile == AUTO else load(settings.profile, settings.profile_folder)


def _tell_of_mistakes(settings: TuningConfig) -> None:
    """In the log only: a wrong profile is no reason to keep no time."""
    try:
        check_profile(settings)
    except ConfigError as error:
        for line in str(error).splitlines():
            _LOG.error("tuning: %s; nothing can be planned until that is corrected", line)
