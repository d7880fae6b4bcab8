import json
from dataclasses import replace

import pytest
from clockgated.tuning import codec
from clockgated.tuning.model import (
    Area,
    BufferBound,
    Change,
    Counter,
    Finding,
    Input,
    Knob,
    LinkId,
    Plan,
    Refusal,
    Risk,
    Verdict,
    Why,
    normal,
)  # fmt: skip
from hypothesis import given, settings
from hypothesis import strategies as st

plans = st.builds(
    Plan,
    changes=st.lists(st.builds(Change), max_size=2).map(tuple),
    findings=st.lists(st.builds(Finding), max_size=2).map(tuple),
    refusals=st.lists(st.builds(Refusal), max_size=2).map(tuple),
    bounds=st.lists(st.builds(BufferBound, gain=st.floats(1, 1e6)), max_size=2).map(tuple),
)
finite = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text())
st.register_type_strategy(Input, st.builds(Input, st.text(), finite, st.text()))


@settings(max_examples=40)
@given(plans)
def test_a_plan_comes_back_as_it_went(plan: Plan) -> None:
    assert codec.from_json(Plan, codec.to_json(plan)) == plan


@given(st.builds(Verdict))
def test_a_verdict_comes_back_as_it_went(verdict: Verdict) -> None:
    assert codec.from_json(Verdict, codec.to_json(verdict)) == verdict


@given(st.binary())
def test_odd_bytes_give_a_clear_error_alone(data: bytes) -> None:
    with pytest.raises(codec.CodecError):
        codec.from_json(Change, data)


@settings(max_examples=40)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_json_of_another_shape_gives_a_clear_error_alone(document: object) -> None:
    with pytest.raises(codec.CodecError):
        codec.from_json(Change, json.dumps(document).encode())


def test_an_edited_journal_is_told_by_its_place() -> None:
    data = codec.to_data(one_change())
    data["knob"]["netns"] = "4026531840"
    with pytest.raises(codec.CodecError, match=r"Change\.knob\.netns is '4026531840': wanted int"):
        codec.from_json(Change, json.dumps(data).encode())
    data["knob"]["netns"] = True
    with pytest.raises(codec.CodecError, match="wanted int"):
        codec.from_json(Change, json.dumps(data).encode())


def one_change() -> Change:
    knob = Knob(1, Area.CHANNELS, "rx", LinkId("eth0", 2, "02:00:00:00:00:01", "mlx5_core"))
    return Change(knob, "1", "2", Why("because"), Risk.LINK)


def test_the_hash_covers_what_was_found_and_what_is_wanted_and_which() -> None:
    change = one_change()
    other_link = replace(change.knob, link=LinkId("eth0", 2, "02:00:00:00:00:02", "mlx5_core"))
    others = [
        replace(change, found="3"), replace(change, wanted="4"), replace(change, knob=replace(change.knob, key="tx")),
        replace(change, knob=other_link),
    ]  # fmt: skip
    hashes = [codec.plan_hash(1, [one]) for one in (change, *others)]
    hashes += [codec.plan_hash(2, [change]), codec.plan_hash(1, [change, change]), codec.plan_hash(1, [])]
    assert len(set(hashes)) == len(hashes)


def test_the_hash_does_not_depend_on_counters_and_reasons() -> None:
    change = one_change()
    other = replace(change, why=Why("for another reason"), evidence=(Counter("a", 1),), owner=None)
    assert codec.plan_hash(1, [change]) == codec.plan_hash(1, [other])


def test_blanks_and_tabs_are_one_spelling() -> None:
    assert normal("4096\t131072\t6291456\n") == "4096 131072 6291456"


def test_a_subject_names_the_link() -> None:
    assert one_change().knob.subject == "eth0 channels.rx"
    assert Knob(1, Area.MTU, "mtu", LinkId("eth0", 2)).subject == "eth0 mtu"
    assert Knob(1, Area.SYSCTL, "vm.x").subject == "vm.x"
