"""Results of tuning -> messages of clockgate.v1.Tuning. Turning a value into a message never fails."""

from clockgate.v1 import tuning_pb2

from clockgated.service.tuning_convert import counter_message, knob_message, owner_message
from clockgated.tuning.model import VerdictCode
from clockgated.tuning.outcome import Outcome, OutcomeCode
from clockgated.tuning.verify import Checked


def outcome_message(outcome: Outcome) -> tuning_pb2.TuningOutcome:
    """The message for what became of a change."""
    return tuning_pb2.TuningOutcome(
        code=tuning_pb2.OutcomeCode.Value(f"OUTCOME_CODE_{outcome.code.name}"),
        knob=knob_message(outcome.knob),
        before=_text(outcome.before),
        wanted=_text(outcome.wanted),
        actual=None if outcome.actual is None else _text(outcome.actual),
        detail=_text(outcome.detail),
    )


def checked_message(checked: Checked) -> tuning_pb2.TuningVerdict:
    """The message for a verdict, with the change's counters now and when it was planned."""
    verdict = checked.verdict
    return tuning_pb2.TuningVerdict(
        code=tuning_pb2.VerdictCode.Value(f"VERDICT_CODE_{verdict.code.name}"),
        knob=knob_message(verdict.knob),
        wanted=_text(verdict.wanted),
        actual=None if verdict.actual is None else _text(verdict.actual),
        detail=_text(verdict.detail),
        owner=owner_message(verdict.owner),
        evidence=map(counter_message, verdict.evidence),
        evidence_before=map(counter_message, checked.evidence_before),
    )


def _text(text: str) -> str:
    # Odd bytes of a foreign file become lone surrogates, which protobuf refuses.
    return text.encode(errors="replace").decode()


ENUMERATIONS = (
    (OutcomeCode, tuning_pb2.OutcomeCode, "OUTCOME_CODE_"),
    (VerdictCode, tuning_pb2.VerdictCode, "VERDICT_CODE_"),
)
"""Own enumerations beside those of the API, which have to have the same names."""
