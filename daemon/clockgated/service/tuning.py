"""clockgate.v1.Tuning as far as it plans: what would be set on this node, and why. Changes nothing."""

import threading
from collections.abc import Callable

import grpc
from clockgate.v1 import tuning_pb2, tuning_pb2_grpc

from clockgated.errors import ClockgateError, ConfigError
from clockgated.service.tuning_convert import plan_message
from clockgated.tuning.model import Plan

_LONGEST_RTT_MS = 10_000
_PLANS_AT_ONCE = 2

Planner = Callable[[str | None, float | None], Plan]
"""A profile's name and a round-trip time in ms (None: as configured) -> the plan; raises ClockgateError."""


class TuningServicer(tuning_pb2_grpc.TuningServicer):
    """Answers Plan by looking at the node: what both sockets share."""

    def __init__(self, plan: Planner) -> None:
        self._plan = plan
        self._room = threading.BoundedSemaphore(_PLANS_AT_ONCE)

    def Plan(  # noqa: N802 - named by the API
        self, request: tuning_pb2.PlanRequest, context: grpc.ServicerContext
    ) -> tuning_pb2.PlanResponse:
        """Plan for the profile of the request, else for the configured one."""
        rtt_ms = request.rtt_ms if request.HasField("rtt_ms") else None
        if rtt_ms is not None and not 0 < rtt_ms <= _LONGEST_RTT_MS:
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"rtt_ms = {rtt_ms:g}: wanted more than 0, at most {_LONGEST_RTT_MS}",
            )
        profile = request.profile if request.HasField("profile") else None
        # Anybody may ask, and each plan holds a worker for up to seconds: readings must not wait behind them.
        if not self._room.acquire(blocking=False):
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{_PLANS_AT_ONCE} plans are being made already; ask again in a few seconds",
            )
        try:
            plan = self._plan(profile, rtt_ms)
        except ConfigError as error:
            # A name that came with the request is the asker's mistake, a configured one the administrator's.
            code = grpc.StatusCode.FAILED_PRECONDITION if profile is None else grpc.StatusCode.INVALID_ARGUMENT
            context.abort(code, str(error))
        except ClockgateError as error:
            context.abort(grpc.StatusCode.ABORTED, str(error))
        finally:
            self._room.release()
        return tuning_pb2.PlanResponse(plan=plan_message(plan))
