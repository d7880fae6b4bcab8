"""What tuning touches this host with, put together. Loads netlink, and so only when there is something to do."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from clockgated.config import TuningConfig
from clockgated.tuning import reach
from clockgated.tuning.apply import Surroundings
from clockgated.tuning.confirm import Target
from clockgated.tuning.counters import read_counters
from clockgated.tuning.desk import Outside, Tools
from clockgated.tuning.drift import DriftPolicy
from clockgated.tuning.ethtool import Ethtool
from clockgated.tuning.guard import host_guard
from clockgated.tuning.host_hand import HostHand
from clockgated.tuning.host_stamps import HostStamps
from clockgated.tuning.model import Area, Counter, Knob, Owner
from clockgated.tuning.owners import running_writers
from clockgated.tuning.roots import Roots
from clockgated.tuning.suspects import suspect
from clockgated.tuning.sysctl_files import merged, owner_of, read_files
from clockgated.tuning.verify import Eyes


def host_tools(settings: TuningConfig, folder: Path, outside: Outside, roots: Roots | None = None) -> Tools:
    """The tools for this host; `folder` holds the journal."""
    roots = roots or Roots()
    around = Surroundings(
        guard=host_guard(folder, roots),
        stamps=HostStamps(roots.sys),
        targets=partial(_targets, settings),
        reached=reach.reached,
        roots=roots,
        lease_refusal=outside.lease_refusal,
        clock=outside.clock,
        confirm_s=settings.confirm_s,
    )
    eyes = Eyes(partial(_suspect, roots), partial(_counters, roots), partial(policy_of, settings))
    return Tools(HostHand(roots), around, eyes, _news_group)


def _news_group() -> int | None:
    with Ethtool() as ethtool:
        return ethtool.news_group


def policy_of(settings: TuningConfig, knob: Knob) -> DriftPolicy:
    """How `knob` is kept: by its name or key in `reassert`, or by "*"."""
    may_reassert = not {knob.subject, knob.key, "*"}.isdisjoint(settings.reassert)
    return DriftPolicy(may_reassert, settings.reassert_per_hour)


def _targets(settings: TuningConfig) -> tuple[Target, ...]:
    return (*reach.gateways(), *reach.resolved(reach.configured((*settings.probe_hosts, *settings.peers))))


def _suspect(roots: Roots, knob: Knob, actual: str) -> Owner | None:
    in_file = owner_of(knob.key, merged(*read_files(roots.root))) if knob.area is Area.SYSCTL else None
    return suspect(knob, actual, in_file, running_writers(roots))


def _counters(roots: Roots, names: Sequence[str]) -> tuple[Counter, ...]:
    return read_counters(names, roots)
