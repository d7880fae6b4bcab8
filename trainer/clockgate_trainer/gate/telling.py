"""The words in which the gate tells of its decisions."""

import logging
from collections.abc import Mapping

from clockgate.v1 import clock_pb2

from clockgate_trainer.gate.model import Decision

_log = logging.getLogger("clockgate_trainer")


def decision_fields(
    decision: Decision, *, vote_ns: int | None, wait_ns: int, held_ns: int, polls: int, detail: str
) -> dict[str, object]:
    """Fields of a "gate" or "hold" event. Durations are monotonic; `vote_ns` is None before the rows are here."""
    return {
        "step": decision.step,
        "kind": decision.kind.name,
        "step_verdict": decision.step_verdict.name,
        "save_verdict": decision.save_verdict.name,
        "cluster_bound_ns": decision.cluster_bound_ns,
        "bound_basis": decision.bound_basis,
        "vote_ns": vote_ns,
        "wait_ns": wait_ns,
        "held_ns": held_ns,
        "polls": polls,
        "reasons": reason_names(decision.reasons),
        "untimed_reasons": reason_names(decision.untimed_reasons),
        "blamed_ranks": list(decision.blamed_ranks),
        "disproved_ranks": list(decision.disproved_ranks),
        "flags": [flag.name for flag in decision.flags],
        "detail": detail,
    }


class Teller:
    """What a person should read of the gate's events, in their order.

    A warning is told when it begins or its cause changes, and when it is over, not at every step.
    """

    def __init__(self) -> None:
        self._warning: str | None = None

    def sentences(self, name: str, fields: Mapping[str, object]) -> list[str]:
        """The sentences for one event; mostly none. Names and fields are those of ClockGate's `on_event`."""
        step = fields["step"]
        if name == "hold":
            return [f"step {step}: all ranks wait: {_cause(fields)}"]
        if "level" in fields:
            return [] if fields["level"] == "INFO" else [f"step {step}: warning: {fields['detail']}"]
        told = self._change_of_warning(fields)
        held_ns = fields["held_ns"]
        if isinstance(held_ns, int) and held_ns:
            told.append(f"step {step}: waited {held_ns / 1e9:.1f} s, then {fields['step_verdict']}")
        return told

    def _change_of_warning(self, fields: Mapping[str, object]) -> list[str]:
        if fields["kind"] != "STEP":
            return []
        before, self._warning = self._warning, _cause(fields) if fields["step_verdict"] == "WARN" else None
        if self._warning not in (None, before):
            return [f"step {fields['step']}: warning: {self._warning}; training goes on"]
        if self._warning is None and before is not None:
            return [f"step {fields['step']}: the warning is over"]
        return []


class EventLogger:
    """Tells the gate's events to Python's logging, under "clockgate_trainer": sentences of rank 0 as warnings, every
    event for debugging.
    """

    def __init__(self, *, leads: bool) -> None:
        self._leads = leads
        self._teller = Teller()

    def __call__(self, name: str, fields: Mapping[str, object]) -> None:
        """Tell one event."""
        _log.debug("%s %s", name, dict(fields))
        for sentence in self._teller.sentences(name, fields):
            if self._leads:
                _log.warning("%s", sentence)


def _cause(fields: Mapping[str, object]) -> str:
    reasons, ranks = fields["reasons"], fields["blamed_ranks"]
    named = ", ".join(map(str, reasons)) if isinstance(reasons, list) else ""
    who = f" (rank {', '.join(map(str, ranks))})" if isinstance(ranks, list) and ranks else ""
    return f"{named or 'no reason given'}{who}"


def reason_names(reasons: int) -> list[str]:
    """Names of a set of ReasonCode bits without their prefix; bits unknown to this version as `REASON_<n>`."""
    names = {value.number: value.name for value in clock_pb2.ReasonCode.DESCRIPTOR.values}
    return [
        names.get(code, f"REASON_{code}").removeprefix("REASON_CODE_")
        for code in range(1, reasons.bit_length())
        if reasons >> code & 1
    ]
