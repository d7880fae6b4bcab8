from typing import Any

import pytest
from clockgate.v1 import admin_pb2, clock_pb2
from clockgated import drill
from clockgated.clock.model import ClockState, Reading, Reason, ReasonCode, Reference, SourceKind, Traceability
from clockgated.service.convert import fault_from, reading_message
from hypothesis import given
from hypothesis import strategies as st
from support.readings import GOOD, reading


def test_every_value_of_a_reading_reaches_the_message() -> None:
    reason = Reason(ReasonCode.DRILL, "on purpose")
    message = reading_message(reading(reasons=(reason,)), GOOD.as_of_boot_ns + 250)
    assert message == clock_pb2.Reading(
        state=clock_pb2.CLOCK_STATE_SYNCHRONIZED,
        relative_bound_ns=40_000,
        utc_bound_ns=90_000,
        growth_ppb=50_000,
        epoch=3,
        reference=clock_pb2.Reference(
            identity="ntp:192.0.2.1",
            source_name="ntp.example.net",
            stratum=2,
            ref_id="C0000201",
            traceability=clock_pb2.TRACEABILITY_YES,
        ),
        as_of_boot_ns=100_000_000_000,
        void_after_boot_ns=105_000_000_000,
        boot_id=GOOD.boot_id,
        age_ns=250,
        reasons=[clock_pb2.Reason(code=clock_pb2.REASON_CODE_DRILL, detail="on purpose")],
        assumptions=["the oscillator drifts by at most 50 ppm"],
        source_kind=clock_pb2.SOURCE_KIND_CHRONY,
        offset_ns=-1_200,
        sequence=7,
        estimate_95_ns=2_000,
    )


def test_no_field_of_the_message_is_forgotten() -> None:
    message = reading_message(reading(reasons=(Reason(ReasonCode.DRILL, "x"),)), GOOD.as_of_boot_ns + 1)
    assert {field.name for field, _ in message.ListFields()} == set(clock_pb2.Reading.DESCRIPTOR.fields_by_name)


def test_unknown_is_absent_and_never_zero() -> None:
    unknown = reading(
        relative_bound_ns=None, utc_bound_ns=None, offset_ns=None, estimate_95_ns=None, reference=Reference()
    )
    message = reading_message(unknown, GOOD.as_of_boot_ns)
    assert not message.HasField("relative_bound_ns")
    assert not message.HasField("utc_bound_ns")
    assert not message.HasField("offset_ns")
    assert not message.HasField("estimate_95_ns")
    assert not message.reference.HasField("identity")
    assert not message.reference.HasField("stratum")


def test_offset_of_zero_is_present() -> None:
    assert reading_message(reading(offset_ns=0), GOOD.as_of_boot_ns).HasField("offset_ns")


def test_age_is_set_at_send_and_never_negative() -> None:
    assert reading_message(GOOD, GOOD.as_of_boot_ns + 9).age_ns == 9
    assert reading_message(GOOD, GOOD.as_of_boot_ns - 9).age_ns == 0


def test_a_bound_too_wide_for_the_message_is_left_out() -> None:
    message = reading_message(reading(relative_bound_ns=1 << 63, utc_bound_ns=(1 << 63) - 1), GOOD.as_of_boot_ns)
    assert not message.HasField("relative_bound_ns")
    assert message.utc_bound_ns == (1 << 63) - 1


readings = st.builds(
    Reading,
    state=st.sampled_from(ClockState),
    relative_bound_ns=st.none() | st.integers(0, 1 << 80),
    utc_bound_ns=st.none() | st.integers(0, 1 << 80),
    growth_ppb=st.integers(0, 10**9),
    epoch=st.integers(0, 2**64 - 1),
    reference=st.builds(
        Reference,
        st.none() | st.text(max_size=5),
        st.text("a\udcff,\0", max_size=5),
        st.none() | st.integers(0, 15),
        st.just("C0000201"),
        st.sampled_from(Traceability),
    ),
    as_of_boot_ns=st.integers(0, 1 << 60),
    void_after_boot_ns=st.integers(0, 1 << 60),
    boot_id=st.just("b"),
    reasons=st.lists(st.builds(Reason, st.sampled_from(ReasonCode), st.text("a\udc80", max_size=5)), max_size=2).map(
        tuple
    ),
    assumptions=st.just(()),
    source_kind=st.sampled_from(SourceKind),
    offset_ns=st.none() | st.integers(-(1 << 80), 1 << 80),
    sequence=st.integers(0, 2**64 - 1),
    estimate_95_ns=st.none() | st.integers(0, 1 << 80),
)


@given(readings, st.integers(0, 1 << 60))
def test_any_reading_becomes_a_message(any_reading: Reading, now_boot_ns: int) -> None:
    message = reading_message(any_reading, now_boot_ns)
    assert clock_pb2.Reading.FromString(message.SerializeToString()) == message


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"freeze_source": admin_pb2.FreezeSource()}, drill.Freeze()),
        ({"add_offset": admin_pb2.AddOffset(offset_ns=-5)}, drill.Offset(-5)),
        ({"step_clock": admin_pb2.StepClock(jump_ns=7)}, drill.Step(7)),
        ({"clear": admin_pb2.Clear()}, None),
        ({}, None),
    ],
)
def test_a_drill_request_names_its_fault(fields: dict[str, Any], fault: drill.Fault | None) -> None:
    assert fault_from(admin_pb2.DrillRequest(**fields)) == fault
