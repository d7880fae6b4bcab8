from enum import IntEnum
from typing import Any

import pytest
from clockgate.v1 import clock_pb2, gate_pb2
from clockgate_trainer.gate import model as gate_model
from clockgated.clock import model


def generated(enum: Any, prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): number for name, number in enum.items()}


@pytest.mark.parametrize(
    ("own", "enum", "prefix", "only_on_the_wire"),
    [
        (model.ClockState, clock_pb2.ClockState, "CLOCK_STATE_", {"UNSPECIFIED"}),
        (model.Traceability, clock_pb2.Traceability, "TRACEABILITY_", {"UNSPECIFIED"}),
        (model.SourceKind, clock_pb2.SourceKind, "SOURCE_KIND_", {"UNSPECIFIED"}),
        (gate_model.StepVerdict, gate_pb2.StepVerdict, "STEP_VERDICT_", {"UNSPECIFIED", "UNKNOWN"}),
        (gate_model.SaveVerdict, gate_pb2.SaveVerdict, "SAVE_VERDICT_", {"UNSPECIFIED"}),
    ],
)
def test_numbers_equal_those_of_the_api(own: type[IntEnum], enum: Any, prefix: str, only_on_the_wire: set[str]) -> None:
    wire = generated(enum, prefix)
    assert {member.name: member.value for member in own} == {
        name: number for name, number in wire.items() if name not in only_on_the_wire
    }


# What a verdict adds to a reading's own causes; the daemon's readings never carry these.
VERDICT_CODES = {*range(32, 41), clock_pb2.REASON_CODE_CAUSALITY_VIOLATED}


def test_reason_codes_of_the_daemon_are_all_but_the_verdicts_own() -> None:
    wire = generated(clock_pb2.ReasonCode, "REASON_CODE_")
    assert {code.name: code.value for code in model.ReasonCode} == {
        name: number for name, number in wire.items() if number > 0 and number not in VERDICT_CODES
    }


def test_a_set_of_reasons_fits_one_int64() -> None:
    assert max(clock_pb2.ReasonCode.values()) < 62
