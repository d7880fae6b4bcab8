"""What all rules share: the situation that they judge, and how they put their answers. Pure."""

import fnmatch
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from clockgated.tuning.facts import Facts, Link
from clockgated.tuning.model import Area, Change, Counter, Finding, Input, Knob, Refusal, RefusalCode, Risk, Why
from clockgated.tuning.profile import Profile
from clockgated.tuning.validate import problem as problem_of
from clockgated.tuning.values import numbers, value_problem

Outcome = Change | Finding | Refusal


class Stance(StrEnum):
    """What a rule may do."""

    SET = "set"
    """It may set the value where the profile asks for it."""
    REPORT = "report"
    """It only tells."""
    NEVER = "never"
    """It would do harm; a value that differs from the kernel's own is told."""


@dataclass(frozen=True)
class Growth:
    """By how much a counter rose while the daemon watched."""

    count: int
    over_s: float


@dataclass(frozen=True)
class Situation:
    """What rules judge. `earlier` holds counters as they were `earlier_age_s` before the facts."""

    facts: Facts
    profile: Profile
    earlier: Mapping[str, int] = field(default_factory=dict)
    earlier_age_s: float = 0.0

    def growth(self, counter: str) -> Growth | None:
        """How much `counter` rose; None when it is not known at both ends. A counter that was reset has not risen."""
        now = self.counters.get(counter)
        before = self.earlier.get(counter)
        if now is None or before is None or self.earlier_age_s <= 0:
            return None
        return Growth(max(0, now - before), self.earlier_age_s)

    @property
    def counters(self) -> Mapping[str, int]:
        """Every counter of the facts by name."""
        return counters_of(self.facts)

    def evidence(self, *names: str) -> tuple[Counter, ...]:
        """Those counters as they are, where they are known."""
        found = self.counters
        return tuple(Counter(name, found[name]) for name in names if name in found)

    def tuned_links(self) -> tuple[Link, ...]:
        """The links whose own settings may be changed."""
        patterns = self.profile.links
        if not patterns:
            return tuple(link for link in self.facts.links if link.is_hardware and link.is_up)
        return tuple(
            link for link in self.facts.links if any(fnmatch.fnmatchcase(link.name, pattern) for pattern in patterns)
        )

    def local_cpus(self, link: Link) -> tuple[int, ...]:
        """The CPUs of the link's NUMA node; all of them where it has none."""
        cpus = self.facts.host.cpus
        if link.numa_node is not None and cpus.by_node.get(link.numa_node):
            return cpus.by_node[link.numa_node]
        return tuple(range(cpus.count))


@dataclass(frozen=True)
class Rule:
    """One row of a table: what it is about, what it may do, why in one sentence, and how it decides."""

    name: str
    stance: Stance
    reason: str
    decide: Callable[[Situation], Iterable[Outcome]]


def counters_of(facts: Facts) -> dict[str, int]:
    """Every counter of the facts by name: TCP's, the links', and what only drivers tell."""
    host = facts.host
    found = {one.name: one.value for one in host.tcp_counters}
    pairs = [("softnet.dropped", host.softnet_dropped), ("softnet.squeezed", host.softnet_squeezed)]
    for link in facts.links:
        found |= {one.name: one.value for one in link.counters}
        if link.pause is not None:
            pairs.append((f"{link.name}.rx_pause_frames", link.pause.rx_frames))
        if link.fec is not None:
            pairs.append((f"{link.name}.fec_uncorrectable", link.fec.uncorrectable))
    return found | {name: value for name, value in pairs if value is not None}


def set_sysctl(
    situation: Situation,
    key: str,
    wanted: str,
    why: Why,
    *,
    risk: Risk = Risk.SOCKETS,
    available: Iterable[str] = (),
    evidence: tuple[Counter, ...] = (),
) -> Iterable[Outcome]:
    """The change that sets the sysctl `key`, nothing when it is set already, or why it cannot be set here."""
    facts = situation.facts
    fact = facts.sysctls.get(key)
    problem = value_problem(key, wanted, tuple(available))
    if problem is not None:
        yield _no_value(key, wanted, problem)
        return
    knob = Knob(facts.netns, Area.SYSCTL, key)
    if fact is None:
        yield absent_sysctl(facts, knob, wanted, why)
        return
    if fact.value == wanted:
        return
    if not fact.is_writable:
        yield Refusal(
            RefusalCode.READ_ONLY,
            key,
            why,
            "set it where it can be written: in the first network namespace of the node, outside of any container",
            knob=knob,
            found=fact.value,
            wanted=wanted,
        )
        return
    change = Change(
        knob,
        fact.value,
        wanted,
        why,
        risk,
        new_connections_only=risk is Risk.SOCKETS,
        evidence=evidence,
    )
    # What an apply would refuse is not offered: it would take the whole plan down with it.
    problem = problem_of(change, tuple(available))
    yield change if problem is None else _no_value(key, wanted, problem)


def _no_value(key: str, wanted: str, problem: str) -> Refusal:
    sentence = f"the wanted value is none: {problem}"
    return Refusal(RefusalCode.ERROR, key, Why(sentence), "correct the profile", wanted=wanted)


def absent_sysctl(facts: Facts, knob: Knob, wanted: str, why: Why) -> Refusal:
    """Why a key that is not there cannot be set, and whether it may come."""
    if knob.key.startswith("net.netfilter."):
        step = "nothing: it is planned again; it appears when the module is loaded"
        return Refusal(RefusalCode.PENDING, knob.key, why, step, knob=knob, wanted=wanted)
    step = "set it in the first network namespace of the node" if not facts.is_initial_netns else "needs another kernel"
    return Refusal(RefusalCode.UNSUPPORTED, knob.key, why, step, knob=knob, wanted=wanted)


def raise_sysctl(
    situation: Situation, key: str, wanted: int, why: Why, *, risk: Risk, evidence: tuple[Counter, ...] = ()
) -> Iterable[Outcome]:
    """As set_sysctl for one number, and only upwards."""
    found = number(situation, key)
    if found is None or found < wanted:
        yield from set_sysctl(situation, key, str(wanted), why, risk=risk, evidence=evidence)


def number(situation: Situation, key: str) -> int | None:
    """The single number that a sysctl holds; None when it is absent or something else."""
    read = numbers(situation.facts.sysctl(key) or "")
    return read[0] if read is not None and len(read) == 1 else None


def spoiled(situation: Situation, key: str, wanted: str) -> Refusal:
    """The value found is none that the kernel should hold: a rule that builds on it has to stop."""
    found = situation.facts.sysctl(key)
    return Refusal(
        RefusalCode.ERROR,
        key,
        Why(f"the value found is none: wanted {wanted}"),
        f"look who wrote it, then `sysctl -w {key}=...`",
        knob=Knob(situation.facts.netns, Area.SYSCTL, key),
        found=found,
    )


def set_link(
    situation: Situation,
    link: Link,
    area: Area,
    change: tuple[str, str, str],
    why: Why,
    *,
    resets_link: bool,
    evidence: tuple[Counter, ...] = (),
) -> Change:
    """A change of a link's own setting, which is made under commit-confirm; `change` is key, found and wanted."""
    key, found, wanted = change
    knob = Knob(situation.facts.netns, area, key, link.link_id)
    return Change(knob, found, wanted, why, Risk.LINK, resets_link=resets_link, needs_confirm=True, evidence=evidence)


def tell(
    code: str, subject: str, sentence: str, *inputs: Input, next_step: str = "", evidence: tuple[Counter, ...] = ()
) -> Finding:
    """A finding; one with a next step is for somebody's attention."""
    return Finding(code, subject, Why(sentence, "", inputs), bool(next_step), next_step, evidence)
