from dataclasses import replace
from pathlib import Path

import pytest
from clockgated.config import TuningConfig
from clockgated.errors import ConfigError
from clockgated.tuning.facts import Rings
from clockgated.tuning.history import CounterHistory, Sample
from clockgated.tuning.survey import Surveyor, check_profile, raised_by_counters
from clockgated.units import NS_PER_S
from hypothesis import given
from hypothesis import strategies as st
from support.tuning_tree import Tree, facts, link

MINUTE_NS = 60 * NS_PER_S


def test_growth_reaches_back_an_hour_and_no_further() -> None:
    history = CounterHistory()
    for minute in range(0, 181, 10):
        history.note(Sample(minute * MINUTE_NS, {"a": minute}))
    counters, age_s = history.before(180 * MINUTE_NS)
    assert (counters, age_s) == ({"a": 120}, 3600)


def test_samples_come_no_closer_than_ten_minutes() -> None:
    history = CounterHistory()
    history.note(Sample(0, {"a": 1}))
    assert not history.is_due(9 * MINUTE_NS)
    history.note(Sample(9 * MINUTE_NS, {"a": 5}))
    assert history.before(9 * MINUTE_NS) == ({"a": 1}, 540)


def test_a_counter_counts_from_where_it_was_first_seen() -> None:
    history = CounterHistory()
    history.note(Sample(0, {"a": 1}))
    history.note(Sample(MINUTE_NS, {"a": 2, "eth0.rx_pause_frames": 7}))
    assert history.before(MINUTE_NS)[0] == {"a": 1, "eth0.rx_pause_frames": 7}


def test_what_was_counted_under_other_settings_is_forgotten() -> None:
    history = CounterHistory()
    history.note(Sample(0, {"a": 1}))
    history.restart(Sample(MINUTE_NS, {"a": 50}))
    assert history.before(MINUTE_NS) == ({"a": 50}, 0)
    seen = facts(link(rings=Rings(512, 8192)))
    moved = replace(seen, links=(link(rings=Rings(1024, 8192)),))
    assert raised_by_counters(seen) != raised_by_counters(moved)
    assert raised_by_counters(seen) != raised_by_counters(facts(sysctls={"net.core.netdev_max_backlog": "2000"}))
    assert raised_by_counters(seen) == raised_by_counters(replace(seen, as_of_boot_ns=9))


@given(st.lists(st.integers(0, 600), max_size=30))
def test_the_history_stays_small_and_never_looks_ahead(minutes: list[int]) -> None:
    history = CounterHistory()
    for minute in sorted(minutes):
        history.note(Sample(minute * MINUTE_NS, {"a": minute}))
        counters, age_s = history.before(minute * MINUTE_NS)
        assert counters["a"] <= minute
        assert age_s >= 0


def test_a_wrong_profile_is_told_in_the_log_and_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = TuningConfig(profile="lab", profile_folder=tmp_path)
    surveyor = Surveyor(settings, Tree(tmp_path).roots)
    assert "profile lab: no such file" in caplog.text
    with pytest.raises(ConfigError, match="profile lab"):
        surveyor.survey()
    with pytest.raises(ConfigError, match="profile lab"):
        check_profile(settings)
    assert check_profile(TuningConfig()) is None
