"""Tuning.Plan over a real socket: messages, refusals, and how many may ask at once."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import grpc
import pytest
from clockgate.v1 import tuning_pb2, tuning_pb2_grpc
from clockgated.ctl import tune
from clockgated.errors import ConfigError
from clockgated.service.tuning import TuningServicer
from clockgated.service.tuning_convert import ENUMERATIONS, plan_message
from clockgated.tuning.model import Change, Counter, Input, Knob, Plan, Why
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tuning_tree import facts, link, plan_for, profile

Planner = Callable[[str | None, float | None], Plan]


class PlansAlone(TuningServicer):
    def Verify(self, request: Any, context: Any) -> Any:  # noqa: N802
        raise NotImplementedError

    def Apply(self, request: Any, context: Any) -> Any:  # noqa: N802
        raise NotImplementedError

    def Revert(self, request: Any, context: Any) -> Any:  # noqa: N802
        raise NotImplementedError


@contextmanager
def served(folder: Path, planner: Planner) -> Iterator[grpc.Channel]:
    server = grpc.server(ThreadPoolExecutor(8))
    tuning_pb2_grpc.add_TuningServicer_to_server(PlansAlone(planner), server)
    server.add_insecure_port(f"unix:{folder}/t.sock")
    server.start()
    try:
        with grpc.insecure_channel(f"unix:{folder}/t.sock") as channel:
            yield channel
    finally:
        server.stop(0).wait()


def test_a_plan_arrives_with_profile_and_path_as_asked(tmp_path: Path) -> None:
    asked: list[tuple[str | None, float | None]] = []

    def planner(name: str | None, rtt_ms: float | None) -> Plan:
        asked.append((name, rtt_ms))
        return plan_for(facts(rtt_us=50_000))

    with served(tmp_path, planner) as channel:
        plan = tune.read_plan(channel, "tcp", 50.0)
        tune.read_plan(channel, None, None)
    assert asked == [("tcp", 50.0), (None, None)]
    assert plan == plan_message(plan_for(facts(rtt_us=50_000)))
    assert plan.changes[0].why.inputs[1].number == 100_000_000_000


@pytest.mark.parametrize(("name", "code"), [("tcpp", "INVALID_ARGUMENT"), (None, "FAILED_PRECONDITION")])
def test_a_wrong_profile_is_the_askers_or_the_administrators_mistake(
    name: str | None, code: str, tmp_path: Path
) -> None:
    def planner(profile: str | None, rtt_ms: float | None) -> Plan:
        raise ConfigError("profile x: no such file")

    with served(tmp_path, planner) as channel:
        with pytest.raises(tune.TuneRefusedError, match="no such file"):
            tune.read_plan(channel, name, None)
        with pytest.raises(grpc.RpcError) as caught:
            tuning_pb2_grpc.TuningStub(channel).Plan(tuning_pb2.PlanRequest(profile=name), timeout=5)
    assert caught.value.code().name == code


@pytest.mark.parametrize("rtt_ms", [0.0, -1.0, 10_001.0, float("nan"), float("inf")])
def test_an_impossible_round_trip_is_refused(rtt_ms: float, tmp_path: Path) -> None:
    with (
        served(tmp_path, lambda name, rtt: plan_for(facts())) as channel,
        pytest.raises(tune.TuneRefusedError, match="wanted more than 0, at most 10000"),
    ):
        tune.read_plan(channel, None, rtt_ms)


def test_a_third_plan_at_once_is_refused_and_later_ones_are_served(tmp_path: Path) -> None:
    may_end, begun = threading.Event(), threading.Semaphore(0)

    def planner(name: str | None, rtt_ms: float | None) -> Plan:
        begun.release()
        assert may_end.wait(20)
        return plan_for(facts())

    with served(tmp_path, planner) as channel, ThreadPoolExecutor(2) as askers:
        slow = [askers.submit(tune.read_plan, channel, None, None) for _ in range(2)]
        assert begun.acquire(timeout=20)
        assert begun.acquire(timeout=20)
        with pytest.raises(tune.TuneRefusedError, match="ask again in a few seconds"):
            tune.read_plan(channel, None, None)
        may_end.set()
        assert all(one.result(20).plan_hash for one in slow)
        assert tune.read_plan(channel, None, None).plan_hash


@pytest.mark.parametrize(("own", "wire", "prefix"), ENUMERATIONS)
def test_every_member_has_its_name_on_the_wire(own: type[Enum], wire: Any, prefix: str) -> None:
    assert {prefix + member.name for member in own} == set(wire.keys()) - {prefix + "UNSPECIFIED"}


finite = st.one_of(st.integers(-(2**63), 2**63), st.floats(allow_nan=False, allow_infinity=False), st.text())
changes = st.builds(
    Change,
    knob=st.builds(Knob, netns=st.integers(0, 2**64 - 1), link=st.none()),
    why=st.builds(Why, inputs=st.lists(st.builds(Input, st.text(), finite, st.text()), max_size=2).map(tuple)),
    evidence=st.lists(st.builds(Counter, st.text(), st.integers(-(2**70), 2**70)), max_size=2).map(tuple),
)


@settings(max_examples=30)
@given(st.lists(changes, max_size=3), st.text(st.characters(exclude_categories=())))
def test_any_plan_becomes_a_message_and_is_shown(made: list[Change], odd: str) -> None:
    start = plan_for(facts(), profile("none"))
    message = plan_message(Plan("0a", odd, odd, odd, 1, 1, tuple(made), start.findings, start.refusals, start.bounds))
    assert tune.as_json(message)["changes"] is not None
    tune.render(message)


def test_the_plan_for_a_person_says_what_why_and_how_to_go_on() -> None:
    plan = plan_message(plan_for(facts(link(speed_mbps=10_000), rtt_us=50_000)))
    shown = tune.render(plan)
    assert "net.ipv4.tcp_rmem: 4096 131072 6291456 -> 4096 131072 134217728   [sockets, new connections only]" in shown
    assert "by: power of two >= 2 * link_bps / 8 * rtt" in shown
    assert "eth0 qdisc.root: pfifo_fast -> fq   [link, undone unless confirmed]" in shown
    assert f"clockgatectl tune apply {plan.plan_hash}" in shown
    assert "larger buffers bring at most" in shown
    assert "\x1b" not in shown


def test_a_plan_without_changes_says_so() -> None:
    assert tune.render(plan_message(plan_for(facts(), profile("none")))).endswith("nothing to do")


def test_names_from_elsewhere_cannot_write_on_the_terminal() -> None:
    shown = tune.render(plan_message(plan_for(facts(link("e\x1b[2J", speed_mbps=10_000), rtt_us=50_000))))
    assert "\x1b" not in shown


def test_json_has_every_field_with_null_for_what_is_absent() -> None:
    shown = tune.as_json(plan_message(plan_for(facts(rtt_us=None))))
    assert shown["exit_code"] == 1
    assert shown["bounds"] == []
    change = shown["changes"][0]
    assert change["resets_link"] is False
    assert change["owner"] is None
    assert change["knob"]["area"] == "TUNING_AREA_SYSCTL"
    assert change["knob"]["link"] is None
    assert isinstance(change["knob"]["netns_inode"], int)
    assert shown["refusals"][0]["code"] == "REFUSAL_CODE_UNKNOWN_INPUT"
