"""clockgate.v1.Gate: one rank's question, answered from the newest reading under the asker's limits; its lease."""

import logging
import threading
from collections.abc import Callable, Iterator

import grpc
from clockgate.rule import judge
from clockgate.v1 import clock_pb2, gate_pb2, gate_pb2_grpc

from clockgated import host
from clockgated.lease_desk import Ending, LeaseDesk
from clockgated.leases import Lease, RefusalKind, Refused
from clockgated.publish import Publisher
from clockgated.service.convert import lease_message, reading_message

_LOG = logging.getLogger(__name__)
_STATUS_OF_REFUSAL = {
    RefusalKind.UNFIT: grpc.StatusCode.INVALID_ARGUMENT,
    RefusalKind.FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    RefusalKind.BANNED: grpc.StatusCode.PERMISSION_DENIED,
}


class GateServicer(gate_pb2_grpc.GateServicer):
    """Applies the shared rule; all that is kept about askers are the leases on `desk`."""

    def __init__(self, publisher: Publisher, desk: LeaseDesk, now_boot_ns: Callable[[], int] = host.boot_ns) -> None:
        self._publisher = publisher
        self._desk = desk
        self._now_boot_ns = now_boot_ns

    def Check(  # noqa: N802 - named by the API
        self, request: gate_pb2.CheckRequest, context: grpc.ServicerContext
    ) -> gate_pb2.CheckResponse:
        """Answer with both verdicts, their causes and the reading that was judged."""
        problem = limits_problem(request)
        if problem is not None:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        self._desk.renew(request.job, request.rank)
        now_boot_ns = self._now_boot_ns()
        reading = reading_message(self._publisher.latest(), now_boot_ns)
        return check(reading, request.limits, now_boot_ns)

    def RegisterJob(  # noqa: N802 - named by the API
        self, request_iterator: Iterator[gate_pb2.RegisterJobRequest], context: grpc.ServicerContext
    ) -> Iterator[gate_pb2.RegisterJobResponse]:
        """Open a lease and hold it until the stream ends, or end the stream when the lease does."""
        request = next(request_iterator, None)
        if request is None:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the stream carried no request message")
        lease = self._desk.open(request.job, request.rank)
        if isinstance(lease, Refused):
            context.abort(_STATUS_OF_REFUSAL[lease.kind], lease.why)
        gone = threading.Event()

        def leave() -> None:
            gone.set()
            self._desk.close(lease.lease_id)

        try:
            if not context.add_callback(leave):
                return
            _LOG.info("lease %s opened: job %s, rank %d", lease.lease_id, lease.job, lease.rank)
            answer = lease_message(lease, self._desk.limits)
            yield gate_pb2.RegisterJobResponse(lease=answer, is_enforced=self._desk.is_enforced)
            ending = self._desk.wait_ended(lease, gone.is_set)
        finally:
            leave()
        _tell_ending(lease, ending, context)


def _tell_ending(lease: Lease, ending: Ending, context: grpc.ServicerContext) -> None:
    sentence = f"lease {lease.lease_id} of job {lease.job}, rank {lease.rank}, is over: {ending.value}"
    _LOG.info("%s", sentence)
    if ending is Ending.STOPPING:
        context.abort(grpc.StatusCode.UNAVAILABLE, f"{sentence}; connect again")
    if ending is not Ending.GONE:
        context.abort(grpc.StatusCode.ABORTED, sentence)


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
