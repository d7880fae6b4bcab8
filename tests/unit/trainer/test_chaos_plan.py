"""The chaos suite's own plan: every fault can strike, every seed is a scenario, and the docs tell of all of them."""

from itertools import chain

import pytest
from support.chaos.impostor import KINDS
from support.chaos.named import named
from support.chaos.phases import LEADER_ONLY, PHASES, resolve
from support.chaos.report import names_in
from support.chaos.scenario import DAMAGES, SIGNALS, STEPS, Deed, Scenario
from support.chaos.seeds import seeded
from support.tools import ROOT

SEEDS = range(300)
VALUES = {
    "daemon": {"SIGKILL", "SIGSTOP", "SIGTERM", "restart"},
    "impostor": set(KINDS),
    "drill": {"freeze", "offset", "step"},
    "reference": {""},
    "weights": {""},
    "chronyd": {"server", "client"},
    "wall": {""},
    "lease": {""},
    "link": {"down"},
    "disk": {"full", "read-only", "mended"},
    "flood": {""},
    "run": {"same", "other"},
    "parent": {"SIGKILL"},
    "launcher": {"SIGTERM"},
    **{name: {""} for name in SIGNALS},
}


def every_scenario() -> list[Scenario]:
    return [*named(), *map(seeded, SEEDS)]


@pytest.mark.parametrize("phase", PHASES)
def test_phase_is_a_function_of_the_program(phase: str) -> None:
    assert resolve(PHASES[phase].function).co_name


def test_every_deed_can_be_done_where_it_is_due() -> None:
    for scenario in every_scenario():
        for deed in scenario.deeds:
            assert deed.value in VALUES[deed.what], deed
            assert deed.phase in PHASES
            assert 1 <= deed.step <= STEPS
            assert 0 <= deed.of < scenario.ranks, deed
            assert deed.rank < scenario.ranks
            assert deed.rank == 0 or deed.phase not in LEADER_ONLY or "homes" in scenario.needs, deed
        assert set(scenario.damages) <= set(DAMAGES)


def test_named_faults_are_many_and_have_each_a_name_of_its_own() -> None:
    names = [scenario.name for scenario in named()]
    assert len(names) == len(set(names))
    assert len(names) >= 30


def test_named_faults_strike_at_every_phase_of_a_step_and_of_a_save() -> None:
    killed = {deed.phase for scenario in named() for deed in scenario.deeds if deed.what == "SIGKILL"}
    assert killed == set(PHASES)


def test_seed_gives_the_same_scenario_every_time_and_seeds_differ() -> None:
    assert seeded(7) == seeded(7)
    assert len({seeded(seed).deeds for seed in SEEDS}) > 0.95 * len(SEEDS)


def test_seeds_combine_faults_and_leave_a_rank_to_be_judged() -> None:
    scenarios = [seeded(seed) for seed in SEEDS]
    assert all(len(scenario.deeds) >= 1 for scenario in scenarios)
    assert sum(len(scenario.deeds) > 1 for scenario in scenarios) > 0.9 * len(SEEDS)
    assert all(len(scenario.victims) <= 1 for scenario in scenarios)
    assert {deed.what for deed in chain.from_iterable(s.deeds for s in scenarios)} >= {"SIGKILL", "disk", "impostor"}


def test_description_is_enough_to_do_it_again() -> None:
    scenario = Scenario("x", (Deed("daemon", "SIGSTOP", target=0, after_s=0.5, for_s=1.0),), damages=("flip a byte",))
    text = scenario.describe()
    for part in (
        "daemon SIGSTOP of 0",
        "rank 1",
        "'before the vote' of step 5",
        "0.5 s later",
        "for 1 s",
        "flip a byte",
    ):
        assert part in text


def test_docs_tell_of_exactly_the_named_faults() -> None:
    assert names_in(ROOT / "docs/reliability.md") == [scenario.name for scenario in named()]
