"""Looking at the host, planning, and settling who else steers: everything before a plan is carried out.

`survey` changes nothing. `prepare` also takes other time daemons over, and says when they are to be given back.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from clockgated.config import Config
from clockgated.errors import ConfigError
from clockgated.manage.carry_out import last_segments
from clockgated.manage.facts import Facts
from clockgated.manage.handover import Handover
from clockgated.manage.mode import PlanCode, PlanReason
from clockgated.manage.plan import make_plan
from clockgated.manage.planned import Plan
from clockgated.manage.probe import gather_facts
from clockgated.manage.settings import Mode
from clockgated.steering.backends import children_folder, own_pids

_log = logging.getLogger(__name__)

LookAtHost = Callable[[Config], Facts]


@dataclass(frozen=True)
class Prepared:
    """A plan that may be carried out now. `gives_back`: what was taken over returns once nothing of ours steers."""

    plan: Plan
    facts: Facts
    gives_back: bool = False


def look_at_host(settings: Config) -> Facts:
    """The facts that planning needs; none beyond the user when nothing is to be managed."""
    if settings.clock.mode is Mode.OBSERVE or os.geteuid() != 0:
        return Facts(is_root=os.geteuid() == 0)
    folders = settings.places
    return gather_facts(
        node_count=settings.clock.node_count,
        own_pids=own_pids(children_folder(folders)),
        own_segments=last_segments(folders),
    )


def survey(settings: Config, look: LookAtHost = look_at_host) -> Prepared:
    """The plan for this host as it is. Raises ConfigError for settings that allow none."""
    facts = look(settings)
    try:
        return Prepared(make_plan(settings.managed, facts, settings.places), facts)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def prepare(settings: Config, handover: Handover | None = None, look: LookAtHost = look_at_host) -> Prepared:
    """The plan for this host, once other time daemons are out of its way, or the plan to observe them.

    Blocks for as long as systemctl takes to stop them. Raises ConfigError for settings that allow no plan.
    """
    if os.geteuid() != 0 and handover is None:
        return survey(settings, look)
    handover = handover or Handover(settings.places)
    try:
        is_taken = bool(handover.records())
        if is_taken and (settings.clock.mode is Mode.OBSERVE or not settings.clock.take_over):
            return _giving_back(look(settings))
        found = survey(settings, look)
        if found.plan.take_over:
            found = _taken_over(settings, found, handover, look)
        return replace(found, gives_back=is_taken and not found.plan.daemons)
    except OSError as error:
        _log.error("%s", error)
        return Prepared(_observing(str(error)), look(settings))


def _taken_over(settings: Config, found: Prepared, handover: Handover, look: LookAtHost) -> Prepared:
    complaints = handover.take(found.plan.take_over)
    after = survey(settings, look)
    if after.plan.take_over:
        left = ", ".join(record.unit for record in after.plan.take_over)
        said = f" ({complaints[0]})" if complaints else ""
        return replace(after, plan=_observing(f"{left} could not be taken over{said}: stop and disable it by hand"))
    return after


def _giving_back(facts: Facts) -> Prepared:
    detail = (
        "other time daemons that were taken over are given back, because take_over is false or mode is observe; the "
        "clock is only observed meanwhile"
    )
    return Prepared(_observing(detail), facts, gives_back=True)


def _observing(detail: str) -> Plan:
    return Plan(Mode.OBSERVE, (PlanReason(PlanCode.OTHER_TIME_DAEMON, detail),))
