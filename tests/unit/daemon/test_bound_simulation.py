"""No usable bound is ever smaller than the true error, over simulated nodes whose true error is known.

A sample of what bench/bound_simulation.py runs at length; the seeds are drawn by hypothesis, the same ones every time.
"""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.simulation.audit import Tally
from support.simulation.node import simulate
from support.simulation.parameters import SCENARIOS

CYCLES = 140
# chronyd takes minutes to settle; steps and sleeps are minutes apart.
LONG_CYCLES = 360
SEEDS = st.integers(0, 2**32 - 1)


def sound(name: str, seed: int, cycles: int) -> Tally:
    tally = simulate(name, seed, cycles)
    assert tally.violations == tally.held_violations == 0, "\n".join(map(str, tally.shown))
    return tally


@pytest.mark.parametrize("name", SCENARIOS)
def test_true_error_is_inside_every_bound_in_use(name: str) -> None:
    total = Tally()
    cycles = LONG_CYCLES if name.startswith("ntp") or name.endswith(("steps", "sleeps")) else CYCLES

    # No shrinking: a smaller seed is no simpler run, and hypothesis traces every line while it looks for one.
    @settings(max_examples=3, derandomize=True, database=None, phases=[Phase.generate])
    @given(seed=SEEDS)
    def each(seed: int) -> None:
        total.add(sound(name, seed, cycles))

    each()
    assert total.samples > cycles, "hardly a usable reading"
    # A bound that covers everything because it is enormous would be worth nothing.
    assert total.worst_share > 0.005


def test_the_same_seed_gives_the_same_run() -> None:
    assert simulate("ptp_unaware", 7, 60) == simulate("ptp_unaware", 7, 60)
    assert simulate("ptp_unaware", 7, 60) != simulate("ptp_unaware", 8, 60)


@pytest.mark.parametrize(
    ("name", "seed", "cycles"),
    [
        # chronyd's estimate rested on samples from both sides of a step.
        ("ntp_steps", 3, 1300),
        # A Sync delayed by far more than the last ones moved the clock while an older reading was in use.
        ("ptp_congested", 6, 230),
        # A servo that estimated its frequency across a step ran off faster than the bound grew.
        ("ptp_software_steps", 15, 50),
        # PTP was lost right after such a Sync, and what the servo answered stayed in force.
        ("ptp_congested_outage", 12, 230),
        # The first Sync after an outage was delayed by just what the clock was off.
        ("ptp_software_loaded_outage", 11, 1250),
    ],
)
def test_runs_that_were_once_outside_their_bound_stay_inside(name: str, seed: int, cycles: int) -> None:
    sound(name, seed, cycles)
