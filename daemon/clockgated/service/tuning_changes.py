"""clockgate.v1.Tuning: verify for everybody, apply and revert for root on the admin socket alone."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import grpc
from clockgate.v1 import tuning_pb2

from clockgated.service.tuning import TuningServicer
from clockgated.service.tuning_results import checked_message, outcome_message
from clockgated.service.words import shown
from clockgated.tuning.desk import RefusalKind, Refused, TuningDesk
from clockgated.tuning.journal import JournalError
from clockgated.tuning.outcome import Outcome

_LOG = logging.getLogger(__name__)
_CHECKS_AT_ONCE = 2
_CODES = {
    RefusalKind.UNKNOWN_PLAN: grpc.StatusCode.NOT_FOUND,
    RefusalKind.MOVED: grpc.StatusCode.ABORTED,
    RefusalKind.BUSY: grpc.StatusCode.ABORTED,
}


class TuningReadServicer(TuningServicer):
    """What only reads. Apply and Revert are refused by name, so that a client hears where they are."""

    def __init__(self, desk: TuningDesk) -> None:
        super().__init__(desk.plan)
        self._desk = desk
        self._verifying = threading.BoundedSemaphore(_CHECKS_AT_ONCE)

    def Verify(  # noqa: N802 - named by the API
        self, request: tuning_pb2.VerifyRequest, context: grpc.ServicerContext
    ) -> tuning_pb2.VerifyResponse:
        """Compare what was applied with what is."""
        # As for plans: anybody may ask.
        if not self._verifying.acquire(blocking=False):
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{_CHECKS_AT_ONCE} comparisons are being made already; ask again in a few seconds",
            )
        try:
            with _journal_errors(context):
                checked = self._desk.verify()
        finally:
            self._verifying.release()
        return tuning_pb2.VerifyResponse(verdicts=map(checked_message, checked))

    def Apply(  # noqa: N802 - named by the API
        self, request: tuning_pb2.ApplyRequest, context: grpc.ServicerContext
    ) -> tuning_pb2.ApplyResponse:
        """Refused here."""
        _denied(context)

    def Revert(  # noqa: N802 - named by the API
        self, request: tuning_pb2.RevertRequest, context: grpc.ServicerContext
    ) -> tuning_pb2.RevertResponse:
        """Refused here."""
        _denied(context)


class TuningAdminServicer(TuningReadServicer):
    """Adds what changes the node."""

    def Apply(  # noqa: N802 - named by the API
        self, request: tuning_pb2.ApplyRequest, context: grpc.ServicerContext
    ) -> tuning_pb2.ApplyResponse:
        """Carry out the plan of the request's hash; blocks until what may cut the node off is confirmed or undone."""
        _LOG.warning("the operator applies tuning plan %s", shown(request.plan_hash))
        with _journal_errors(context):
            outcomes = self._desk.apply(request.plan_hash, ignore_leases=request.ignore_leases)
        return tuning_pb2.ApplyResponse(outcomes=map(outcome_message, _tried(outcomes, context)))

    def Revert(  # noqa: N802 - named by the API
        self, request: tuning_pb2.RevertRequest, context: grpc.ServicerContext
    ) -> tuning_pb2.RevertResponse:
        """Give everything back that was applied."""
        _LOG.warning("the operator reverts tuning")
        with _journal_errors(context):
            outcomes = self._desk.revert(ignore_leases=request.ignore_leases)
        return tuning_pb2.RevertResponse(outcomes=map(outcome_message, _tried(outcomes, context)))


def _tried(outcomes: tuple[Outcome, ...] | Refused, context: grpc.ServicerContext) -> tuple[Outcome, ...]:
    if isinstance(outcomes, Refused):
        context.abort(_CODES[outcomes.kind], outcomes.why)
    return outcomes


@contextmanager
def _journal_errors(context: grpc.ServicerContext) -> Iterator[None]:
    try:
        yield
    except JournalError as error:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))


def _denied(context: grpc.ServicerContext) -> NoReturn:
    context.abort(grpc.StatusCode.PERMISSION_DENIED, "served on the admin socket only; name it with --admin-address")
