"""clockgate.v1.Gate: one rank's question, answered from the newest reading under the asker's limits."""

from collections.abc import Callable

import grpc
from clockgate.rule import judge
from clockgate.v1 import clock_pb2, gate_pb2, gate_pb2_grpc

from clockgated import host
from clockgated.publish import Publisher
from clockgated.service.convert import reading_message


class GateServicer(gate_pb2_grpc.GateServicer):
    """Applies the shared rule; keeps nothing about askers."""

    def __init__(self, publisher: Publisher, now_boot_ns: Callable[[], int] = host.boot_ns) -> None:
        self._publisher = publisher
        self._now_boot_ns = now_boot_ns

    def Check(  # noqa: N802 - named by the API
        self, request: gate_pb2.CheckRequest, context: grpc.ServicerContext
    ) -> gate_pb2.CheckResponse:
        """Answer with both verdicts, their causes and the reading that was judged."""
        problem = limits_problem(request)
        if problem is not None:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        now_boot_ns = self._now_boot_ns()
        reading = reading_message(self._publisher.latest(), now_boot_ns)
        return check(reading, request.limits, now_boot_ns)


def limits_problem(request: gate_pb2.CheckRequest) -> str | None:
    """What is wrong with the limits of `request`, for the asker; None when they can be used."""
    if not request.HasField("limits"):
        return "limits: missing; wanted warn_ns and hold_ns"
    warn_ns, hold_ns = request.limits.warn_ns, request.limits.hold_ns
    for name, value in (("warn_ns", warn_ns), ("hold_ns", hold_ns)):
        if value <= 0:
            return f"limits.{name} = {value}: wanted a positive number of nanoseconds"
    if warn_ns > hold_ns:
        return f"limits.warn_ns = {warn_ns}: wanted at most hold_ns = {hold_ns}"
    return None


def check(reading: clock_pb2.Reading, limits: gate_pb2.Limits, now_boot_ns: int) -> gate_pb2.CheckResponse:
    """The answer for a reading of this boot at `now_boot_ns`. What the reading itself says is a cause of every
    verdict but the best one.
    """
    judgement = judge(reading, limits, now_boot_ns)
    is_clean = (judgement.step, judgement.save) == (gate_pb2.STEP_VERDICT_PROCEED, gate_pb2.SAVE_VERDICT_SAVE)
    return gate_pb2.CheckResponse(
        step_verdict=judgement.step,
        save_verdict=judgement.save,
        reasons=[*judgement.reasons, *([] if is_clean else reading.reasons)],
        reading=reading,
    )
