"""Whether a run under faults ended as it must. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from support.chaos.evidence import Attempt
from support.chaos.scenario import CONFIG, DONE, STEPS, Scenario


@dataclass(frozen=True)
class Truth:
    """What an undisturbed run gives: the digest of its last adapter, and every step's loss."""

    digest: str
    losses: Mapping[int, float]


@dataclass(frozen=True)
class Record:
    """Everything about one scenario: the start with faults, the resumed one, and a second run beside it."""

    scenario: Scenario
    first: Attempt
    resumed: Attempt | None = None
    second: Attempt | None = None
    damaged: frozenset[int] = frozenset()

    @property
    def seconds(self) -> float:
        """Of all its runs."""
        return self.first.seconds + (self.resumed.seconds if self.resumed is not None else 0.0)


def problems(record: Record, truth: Truth) -> tuple[str, ...]:
    """Every sentence that can be said against it; empty: it ended as it must."""
    scenario = record.scenario
    found = [*_ending(scenario, record.first), *_folder(record.first), *_numbers(record.first, truth)]
    if record.resumed is None:
        found += _finished(record.first, truth)
    else:
        found += _resumption(record, record.resumed, truth)
    if record.second is not None:
        found += _second(scenario, record.second, truth)
    return tuple(found)


def _ending(scenario: Scenario, first: Attempt) -> list[str]:
    found = []
    by_launcher = "launcher" in scenario.needs
    survivors = {rank: code for rank, code in enumerate(first.codes) if by_launcher or rank not in scenario.victims}
    hung = [rank for rank, code in survivors.items() if code is None]
    if hung:
        found.append(f"HANG: ranks {hung} did not end")
    odd = {rank: code for rank, code in survivors.items() if code is not None and code not in scenario.ends}
    if odd:
        found.append(f"ended with {odd}, wanted one of {list(scenario.ends)}")
    if len(scenario.ends) == 1 and first.struck < len(scenario.deeds):
        found.append(f"{first.struck} of {len(scenario.deeds)} faults struck")
    if scenario.seen and scenario.seen not in first.events:
        found.append(f"rank 0 logged no {scenario.seen}: the fault had no effect")
    agreed = set(survivors.values())
    if first.leases:
        found.append(f"{first.leases} leases outlived their ranks")
    untold = first.outcome_code is None and any(deed.what == "disk" for deed in scenario.deeds)
    if len(agreed) == 1 and not hung and not untold and first.outcome_code not in agreed:
        found.append(f"outcome.json tells {first.outcome_code}, the ranks ended with {agreed.pop()}")
    return found


def _folder(attempt: Attempt) -> list[str]:
    broken = {step: told for step, told in attempt.standing.items() if told}
    found = [f"CORRUPT: checkpoint-{step}: {'; '.join(told)}" for step, told in broken.items()]
    if attempt.saved and max(attempt.saved) > attempt.newest_verified:
        found.append(f"LOST: step {max(attempt.saved)} was told to be saved, the newest is {attempt.newest_verified}")
    return found


def _numbers(attempt: Attempt, truth: Truth) -> list[str]:
    wrong = [step for step, loss in attempt.losses.items() if truth.losses.get(step) != loss]
    return [f"steps {wrong} have another loss than the undisturbed run's"] if wrong else []


def _finished(attempt: Attempt, truth: Truth) -> list[str]:
    if attempt.digests.get(STEPS) != truth.digest:
        return [f"finished with adapter {attempt.digests.get(STEPS)}, wanted {truth.digest}"]
    return []


def _resumption(record: Record, resumed: Attempt, truth: Truth) -> list[str]:
    found = [*_numbers(resumed, truth), *_finished(resumed, truth)]
    if any(code != DONE for code in resumed.codes):
        found.append(f"the resumed run ended with {resumed.codes}")
    whole = {step for step, told in record.first.standing.items() if not told} - record.damaged
    began = min(resumed.losses, default=STEPS + 1) - 1
    if began != max(whole, default=0):
        found.append(f"UNVERIFIED OR LOST: resumed from step {began}, wanted {max(whole, default=0)}")
    if resumed.hidden:
        found.append(f"left half done: {', '.join(resumed.hidden)}")
    broken = {step for step, told in resumed.standing.items() if told} - record.damaged
    if broken:
        found.append(f"CORRUPT: checkpoints of steps {sorted(broken)} after the resumed run")
    return found


def _second(scenario: Scenario, second: Attempt, truth: Truth) -> list[str]:
    if any(deed.what == "run" and deed.value == "same" for deed in scenario.deeds):
        return [] if second.codes[0] == CONFIG else [f"a second run in the folder was not refused: {second.codes}"]
    found = _finished(second, truth)
    return found if set(second.codes) == {DONE} else [*found, f"the second run ended with {second.codes}"]
