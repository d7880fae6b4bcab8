"""From what the daemon holds in memory to the page that Prometheus reads."""

import re
import threading
from dataclasses import replace
from typing import Any

import pytest
from clockgated.beats import LIMITS_NS, Beats, Histogram
from clockgated.clock.model import ClockState, Reason, ReasonCode, Reference
from clockgated.metrics import families_clock, families_node
from clockgated.metrics.compose_clock import clock_numbers
from clockgated.metrics.compose_node import node_numbers
from clockgated.metrics.exposition import Exposition
from clockgated.metrics.family import Family, Kind, Numbers
from clockgated.metrics.snapshot import Snapshot, Streams
from clockgated.supervise.base import ChildStatus
from hypothesis import given
from hypothesis import strategies as st
from support.node_looks import HEALTH
from support.readings import GOOD, reading

S = 1_000_000_000
FAMILIES = (*families_clock.ALL, *families_node.ALL)


def snapshot(**changes: Any) -> Snapshot:
    full = Snapshot(
        reading=replace(GOOD, reasons=(Reason(ReasonCode.ISLAND, "x"),)),
        now_boot_ns=GOOD.as_of_boot_ns + 2 * S,
        version="0.1.0",
        cpu_ns=3 * S,
        children=(ChildStatus("chronyd", running=True, exits=2),),
        leases=3,
        leases_limit=64,
        streams={"read": Streams(5, 7)},
        tuning_applied=9,
        tuning_drifted=1,
        node=HEALTH,
    )
    return replace(full, **changes)


def numbers(seen: Snapshot) -> dict[str, Numbers]:
    return {one.family.name: one for one in (*clock_numbers(seen), *node_numbers(seen))}


def value(seen: Snapshot, family: Family, *labels: str) -> float | None:
    return dict(numbers(seen)[family.name].samples).get(labels)


def test_every_metric_has_a_number_when_everything_is_known() -> None:
    found = numbers(snapshot())
    assert set(found) == {one.name for one in FAMILIES}
    assert [name for name, one in found.items() if not one.samples and one.buckets is None] == []


@pytest.mark.parametrize("family", FAMILIES, ids=lambda one: one.name)
def test_names_and_help_follow_the_conventions(family: Family) -> None:
    assert re.fullmatch(r"clockgate_[a-z][a-z0-9_]*", family.name)
    assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)
    assert not re.search(r"_(ms|us|ns|percent|milli\w+|micro\w+|kib|gib|minutes)(_|$)", family.name)
    assert family.help.endswith(".")
    assert len(set(family.labels)) == len(family.labels)


def test_names_are_unique() -> None:
    assert len({one.name for one in FAMILIES}) == len(FAMILIES)


def test_labels_fit_the_family_and_never_repeat() -> None:
    for one in numbers(snapshot()).values():
        keys = [labels for labels, _ in one.samples]
        assert {len(key) for key in keys} <= {len(one.family.labels)}
        assert len(set(keys)) == len(keys)


def test_a_bound_is_told_as_it_is_now_in_seconds() -> None:
    seen = snapshot()
    # 40 µs, growing by 50 ppm for 2 s.
    assert value(seen, families_clock.RELATIVE_BOUND) == pytest.approx(140e-6)
    assert value(seen, families_clock.OFFSET) == pytest.approx(-1.2e-6)
    assert value(seen, families_clock.AGE) == 2
    assert value(seen, families_clock.VOID_IN) == 3


def test_what_is_unknown_has_no_number() -> None:
    nothing = reading(
        relative_bound_ns=None, utc_bound_ns=None, offset_ns=None, estimate_95_ns=None, reference=Reference()
    )
    seen = snapshot(reading=nothing, tuning_applied=None, tuning_drifted=None, node=None)
    for family in (
        families_clock.RELATIVE_BOUND, families_clock.UTC_BOUND, families_clock.OFFSET, families_clock.ESTIMATE,
        families_clock.STRATUM, families_clock.TUNING_DRIFT,
    ):  # fmt: skip
        assert numbers(seen)[family.name].samples == ()
    assert value(seen, families_clock.USABLE) == 0
    assert families_node.HEALTH.name not in numbers(seen)


def test_exactly_the_state_that_holds_is_1() -> None:
    found = dict(numbers(snapshot())[families_clock.STATE.name].samples)
    assert {labels[0] for labels in found} == {state.name.lower() for state in ClockState}
    assert [labels[0] for labels, one in found.items() if one] == ["synchronized"]
    assert value(snapshot(), families_clock.REASON, "island") == 1
    assert value(snapshot(), families_clock.REASON, "drill") == 0


@pytest.mark.parametrize(
    ("changes", "now_boot_ns", "usable"),
    [
        ({}, GOOD.void_after_boot_ns, 1),
        ({}, GOOD.void_after_boot_ns + 1, 0),
        ({"state": ClockState.HOLDOVER}, GOOD.as_of_boot_ns, 1),
        ({"state": ClockState.FREE_RUNNING}, GOOD.as_of_boot_ns, 0),
    ],
)
def test_usable_is_what_the_trainer_would_find(changes: dict[str, Any], now_boot_ns: int, usable: int) -> None:
    seen = snapshot(reading=reading(**changes), now_boot_ns=now_boot_ns)
    assert value(seen, families_clock.USABLE) == usable


def test_base_units_of_devices() -> None:
    seen = snapshot()
    assert value(seen, families_node.RDMA_RATE, "mlx5_0", "1") == 50e9
    # The kernel counts words of four bytes.
    assert value(seen, families_node.RDMA_RECEIVED, "mlx5_0", "1") == 40
    assert value(seen, families_node.LINK_SPEED, "eth0") == 12.5e9
    assert value(seen, families_node.GPU_POWER, "0", "GPU-a") == 700
    assert value(seen, families_node.GPU_UTILIZATION, "0", "GPU-a") == pytest.approx(0.9)
    assert value(seen, families_node.NVLINKS_UP, "0", "GPU-a") == 1
    assert value(seen, families_node.PEER_RTT, "p") == pytest.approx(250e-6)
    assert value(seen, families_node.FINDING, "gpu_throttled", "warning", "gpu 0") == 1


@given(st.lists(st.integers(0, 10**11), max_size=50))
def test_a_histogram_has_every_duration_once(durations_ns: list[int]) -> None:
    seen = Histogram()
    for one in durations_ns:
        seen = seen.with_one(one)
    assert (sum(seen.counts), seen.sum_ns) == (len(durations_ns), sum(durations_ns))
    upto = [sum(seen.counts[: place + 1]) for place in range(len(LIMITS_NS))]
    assert upto == [sum(one <= limit for one in durations_ns) for limit in LIMITS_NS]


def test_cycles_are_counted_by_what_became_of_them() -> None:
    beats = Beats()
    beats.note(late_ns=-5, took_ns=3_000_000, is_published=True)
    beats.note(late_ns=700_000_000, took_ns=1, is_published=False)
    seen = snapshot(beat=beats.latest())
    assert value(seen, families_clock.CYCLES, "published") == value(seen, families_clock.CYCLES, "failed") == 1
    buckets = numbers(seen)[families_clock.CYCLE_LATENESS.name].buckets
    assert buckets is not None
    assert buckets.count == 2
    assert buckets.sum == pytest.approx(0.7)
    assert dict(buckets.upto)[0.5] == 1
    assert dict(buckets.upto)[1.0] == 2


def test_the_page_says_what_the_numbers_say() -> None:
    content_type, page = Exposition(snapshot).page("")
    assert content_type.startswith("text/plain")
    lines = page.decode().splitlines()
    assert "# TYPE clockgate_clock_state gauge" in lines
    assert 'clockgate_clock_state{state="synchronized"} 1.0' in lines
    assert 'clockgate_time_daemon_exits_total{daemon="chronyd"} 2.0' in lines
    assert 'clockgate_cycle_lateness_seconds_bucket{le="0.001"} 0.0' in lines
    assert 'clockgate_cycle_lateness_seconds_bucket{le="+Inf"} 0.0' in lines
    assert "clockgate_cycle_lateness_seconds_sum 0.0" in lines


def test_openmetrics_is_given_to_who_asks_for_it() -> None:
    content_type, page = Exposition(snapshot).page("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert page.endswith(b"# EOF\n")


def test_names_from_other_machines_cannot_break_the_page() -> None:
    wild = replace(GOOD, reference=Reference(source_name='a"b\\c\nd\udcff', identity="ntp:x"))
    page = Exposition(lambda: snapshot(reading=wild)).page("")[1].decode()
    (line,) = [one for one in page.splitlines() if one.startswith("clockgate_clock_reference_info{")]
    assert 'source_name="a\\"b\\\\c\\nd?"' in line


def test_any_number_of_scrapes_makes_few_pages() -> None:
    made: list[int] = []

    def counted() -> Snapshot:
        made.append(1)
        return snapshot()

    exposition = Exposition(counted)
    threads = [threading.Thread(target=exposition.page, args=("",)) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    # Half a second each: one or a few on a machine that is slow.
    assert 1 <= len(made) <= 10
