"""Facts and a profile -> a plan. Pure: the rules speak, then owners are asked, the order is made and the hash taken."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from clockgated.tuning.codec import plan_hash
from clockgated.tuning.facts import GOVERNOR, Facts
from clockgated.tuning.model import Area, Change, Finding, Knob, Owner, OwnerKind, Plan, Refusal, RefusalCode
from clockgated.tuning.profile import Profile
from clockgated.tuning.rules import buffers, host, nic, queues, sockets
from clockgated.tuning.rules.base import Outcome, Rule, Situation
from clockgated.tuning.sysctl_files import owner_of

RULES: tuple[Rule, ...] = (*buffers.TABLE, *sockets.TABLE, *queues.TABLE, *nic.TABLE, *host.TABLE)
_SITES_OWN = "sysctl"
# What cannot hurt goes first, what may cut the node off last; within the links' own settings what rebuilds queues
# comes before what hangs on queues: interrupts and queueing disciplines are lost with them.
_ORDER = (Area.SYSCTL, Area.SYSFS, Area.MTU, Area.EEE, Area.RINGS, Area.CHANNELS, Area.QDISC, Area.IRQ)
_BY_CONNECTION = {Area.MTU: "mtu", Area.RINGS: "ethtool", Area.CHANNELS: "ethtool", Area.EEE: "ethtool"}


def make_plan(
    facts: Facts,
    profile: Profile,
    profile_why: str,
    earlier: Mapping[str, int] | None = None,
    earlier_age_s: float = 0.0,
) -> Plan:
    """The plan. `earlier` holds counters as they were `earlier_age_s` before: without them no counter has grown."""
    situation = Situation(facts, profile, earlier or {}, earlier_age_s)
    outcomes = [one for rule in RULES for one in _decided(rule, situation)]
    judged = [_with_owner(one, facts, profile) if isinstance(one, Change) else one for one in outcomes]
    changes = _ordered([one for one in judged if isinstance(one, Change)])
    return Plan(
        plan_hash=plan_hash(facts.netns, changes),
        profile=profile.name,
        profile_why=profile_why,
        boot_id=facts.boot_id,
        netns=facts.netns,
        as_of_boot_ns=facts.as_of_boot_ns,
        changes=changes,
        findings=tuple(one for one in judged if isinstance(one, Finding)),
        refusals=tuple(one for one in judged if isinstance(one, Refusal)),
        bounds=buffers.buffer_bounds(situation),
    )


def current_owner(knob: Knob, facts: Facts) -> Owner | None:
    """Who else sets `knob`: the strongest word first."""
    owners = facts.owners
    if knob.area is Area.SYSCTL:
        in_file = owner_of(knob.key, owners.sysctls)
        by_tuned = owners.tuned_sysctls.get(knob.key) if owners.tuned_profile is not None else None
        return in_file if in_file is not None and in_file.kind is OwnerKind.ADMIN_FILE else by_tuned or in_file
    if knob.area is Area.SYSFS and knob.key.endswith("/scaling_governor"):
        return owners.tuned_sysctls.get(GOVERNOR) if owners.tuned_profile is not None else None
    if knob.link is not None and knob.area in _BY_CONNECTION:
        return owners.network_manager.get(f"{knob.link.ifindex}.{_BY_CONNECTION[knob.area]}")
    return None


def _decided(rule: Rule, situation: Situation) -> Iterable[Outcome]:
    """What the rule says, without the keys that the site's own profile gives a value: its word stands alone."""
    decide: Callable[[Situation], Iterable[Outcome]] = rule.decide
    sites = situation.profile.sysctl if rule.name != _SITES_OWN else {}
    return (one for one in decide(situation) if isinstance(one, Finding) or _subject(one) not in sites)


def _subject(outcome: Change | Refusal) -> str:
    return outcome.knob.subject if isinstance(outcome, Change) else outcome.subject


def _with_owner(change: Change, facts: Facts, profile: Profile) -> Change | Refusal:
    owner = current_owner(change.knob, facts)
    if owner is None:
        return replace(change, owner=None)
    # A package's file is a default, which its own package expects to be changed.
    if owner.kind is OwnerKind.VENDOR_FILE or {change.knob.subject, change.knob.key} & set(profile.override):
        return replace(change, owner=owner)
    step = f"change it there, or name {change.knob.subject} in the profile's `override`"
    return Refusal(
        RefusalCode.CONFLICT,
        change.knob.subject,
        change.why,
        step,
        knob=change.knob,
        found=change.found,
        wanted=change.wanted,
        owner=owner,
    )


def _ordered(changes: list[Change]) -> tuple[Change, ...]:
    """By area; within one area in the order of the rules, since thresholds are raised from the largest down."""
    return tuple(sorted(changes, key=lambda change: _ORDER.index(change.knob.area)))
