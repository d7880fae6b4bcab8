"""`clockgatectl tune apply`, `verify` and `revert` as a person and as a script want them."""

from collections.abc import Callable, Iterable
from typing import Any

import grpc
from clockgate.v1 import tuning_pb2, tuning_pb2_grpc
from google.protobuf.json_format import MessageToDict

from clockgated.ctl import tune
from clockgated.ctl.address import details, status_code
from clockgated.ctl.status import printable
from clockgated.errors import ClockgateError

APPLY_DEADLINE_S = 720.0
"""Longer than the longest [tuning] confirm_s, after which everything is confirmed or given back."""
VERIFY_DEADLINE_S = 10.0
_PROGRESS_S = 5

_CONFLICTS = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.ABORTED, grpc.StatusCode.RESOURCE_EXHAUSTED)
_USAGE = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED)
_OUTCOME_EXITS = {
    tuning_pb2.OUTCOME_CODE_APPLIED: tune.EXIT_CLEAN,
    tuning_pb2.OUTCOME_CODE_REVERTED: tune.EXIT_CLEAN,
    tuning_pb2.OUTCOME_CODE_LEFT: tune.EXIT_CONFLICT,
    tuning_pb2.OUTCOME_CODE_DEFERRED: tune.EXIT_CONFLICT,
    tuning_pb2.OUTCOME_CODE_GONE: tune.EXIT_UNSUPPORTED,
}
_VERDICT_EXITS = {
    tuning_pb2.VERDICT_CODE_CLEAN: tune.EXIT_CLEAN,
    tuning_pb2.VERDICT_CODE_DRIFT: tune.EXIT_DRIFT,
    tuning_pb2.VERDICT_CODE_UNSUPPORTED: tune.EXIT_UNSUPPORTED,
    tuning_pb2.VERDICT_CODE_CONFLICT: tune.EXIT_CONFLICT,
}


class TuneFailedError(ClockgateError):
    """Nothing was tried, for a reason that `code` tells to scripts."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def apply(
    channel: grpc.Channel, plan_hash: str, *, ignore_leases: bool, tell: Callable[[str], object]
) -> list[tuning_pb2.TuningOutcome]:
    """What became of every change; `tell` hears of progress. Raises TuneFailedError, TuneRefusedError or RpcError."""
    request = tuning_pb2.ApplyRequest(plan_hash=tune.sendable(plan_hash), ignore_leases=ignore_leases)
    call = tuning_pb2_grpc.TuningStub(channel).Apply.future(request, timeout=APPLY_DEADLINE_S)
    waited_s = 0
    while True:
        try:
            return list(call.result(timeout=_PROGRESS_S).outcomes)
        except grpc.FutureTimeoutError:
            waited_s += _PROGRESS_S
            tell(f"{waited_s} s: waiting until it is proven that the node can still be reached")
        except grpc.RpcError as error:
            raise _failed(error) from None


def verify(channel: grpc.Channel) -> list[tuning_pb2.TuningVerdict]:
    """A verdict for every change in force. Raises TuneFailedError, TuneRefusedError, or grpc.RpcError."""
    try:
        answer = tuning_pb2_grpc.TuningStub(channel).Verify(tuning_pb2.VerifyRequest(), timeout=VERIFY_DEADLINE_S)
        return list(answer.verdicts)
    except grpc.RpcError as error:
        raise _failed(error) from None


def revert(channel: grpc.Channel, *, ignore_leases: bool) -> list[tuning_pb2.TuningOutcome]:
    """What became of every change that was in force. Raises TuneFailedError, TuneRefusedError, or grpc.RpcError."""
    request = tuning_pb2.RevertRequest(ignore_leases=ignore_leases)
    try:
        return list(tuning_pb2_grpc.TuningStub(channel).Revert(request, timeout=APPLY_DEADLINE_S).outcomes)
    except grpc.RpcError as error:
        raise _failed(error) from None


def apply_exit(outcomes: Iterable[tuning_pb2.TuningOutcome]) -> int:
    """0 all applied, 4 a link or file is gone, 5 something has to wait, 6 it failed and everything was given back."""
    codes = [one.code for one in outcomes]
    exits = [_OUTCOME_EXITS.get(code, tune.EXIT_ERROR) for code in codes]
    return tune.gravest(exits + [tune.EXIT_ERROR] * (tuning_pb2.OUTCOME_CODE_REVERTED in codes))


def revert_exit(outcomes: Iterable[tuning_pb2.TuningOutcome]) -> int:
    """0 all as it was found (what is gone took its settings along), 5 left to others or has to wait, 6 error."""
    codes = (one.code for one in outcomes if one.code != tuning_pb2.OUTCOME_CODE_GONE)
    return tune.gravest([_OUTCOME_EXITS.get(code, tune.EXIT_ERROR) for code in codes])


def verify_exit(verdicts: Iterable[tuning_pb2.TuningVerdict]) -> int:
    """0 clean, 1 drift, 4 something is gone, 5 left to another writer, 6 error."""
    return tune.gravest([_VERDICT_EXITS.get(one.code, tune.EXIT_ERROR) for one in verdicts])


def outcomes_as_json(outcomes: list[tuning_pb2.TuningOutcome], exit_code: int) -> dict[str, Any]:
    """The outcomes under the names of the API."""
    return {"outcomes": [_plain(one) for one in outcomes], "exit_code": exit_code}


def verdicts_as_json(verdicts: list[tuning_pb2.TuningVerdict]) -> dict[str, Any]:
    """The verdicts under the names of the API."""
    return {"verdicts": [_plain(one) for one in verdicts], "exit_code": verify_exit(verdicts)}


def render_outcomes(outcomes: list[tuning_pb2.TuningOutcome], nothing: str) -> str:
    """One line for each change, and a second one where there is something to tell; `nothing` when there was none."""
    lines: list[str] = []
    for one in outcomes:
        code = tune.enum_name(tuning_pb2.OutcomeCode, one.code, "OUTCOME_CODE_").lower()
        actual = printable(one.actual) if one.HasField("actual") else "unknown"
        lines.append(f"{code}: {tune.subject(one.knob)} is {actual}")
        if one.detail:
            lines.append(f"    {printable(one.detail)}")
    return "\n".join(lines) or nothing


def render_verdicts(verdicts: list[tuning_pb2.TuningVerdict]) -> str:
    """One line for each change in force; what differs and who is behind it, and the counters then and now."""
    lines: list[str] = []
    for one in verdicts:
        code = tune.enum_name(tuning_pb2.VerdictCode, one.code, "VERDICT_CODE_").lower()
        lines.append(f"{code}: {tune.subject(one.knob)} = {printable(one.wanted)}")
        if one.detail:
            lines.append(f"    {printable(one.detail)}")
        if one.HasField("owner"):
            lines.append(f"    by: {printable(one.owner.place)}")
        lines += _counters(one)
    return "\n".join(lines) or "nothing is applied"


def _counters(verdict: tuning_pb2.TuningVerdict) -> list[str]:
    now = {one.name: one.value for one in verdict.evidence}
    told = [f"{printable(one.name)} {one.value} -> {now.get(one.name, 'gone')}" for one in verdict.evidence_before]
    return [f"    counters since the plan: {', '.join(told)}"] if told else []


def _plain(message: Any) -> dict[str, Any]:
    shown: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return shown


def _failed(error: grpc.RpcError) -> Exception:
    code = status_code(error)
    if code in _CONFLICTS:
        return TuneFailedError(details(error), tune.EXIT_CONFLICT)
    if code == grpc.StatusCode.FAILED_PRECONDITION:
        return TuneFailedError(details(error), tune.EXIT_ERROR)
    return tune.TuneRefusedError(details(error)) if code in _USAGE else error
