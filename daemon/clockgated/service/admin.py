"""clockgate.v1.Admin: faults on purpose, and the leases. Only ever added to the server of the admin socket."""

import logging
from collections.abc import Callable

import grpc
from clockgate.v1 import admin_pb2, admin_pb2_grpc

from clockgated import drill, host, units
from clockgated.lease_desk import LeaseDesk
from clockgated.service.convert import fault_from, lease_message
from clockgated.service.words import shown

_LONGEST_NS = 3600 * units.NS_PER_S
_LOG = logging.getLogger(__name__)


class AdminServicer(admin_pb2_grpc.AdminServicer):
    """Puts faults on the board that the cycle reads, and breaks leases on `desk`; touches no clock."""

    def __init__(self, board: drill.DrillBoard, desk: LeaseDesk, now_boot_ns: Callable[[], int] = host.boot_ns) -> None:
        self._board = board
        self._desk = desk
        self._now_boot_ns = now_boot_ns

    def Drill(  # noqa: N802 - named by the API
        self, request: admin_pb2.DrillRequest, context: grpc.ServicerContext
    ) -> admin_pb2.DrillResponse:
        """Start the fault of the request, or clear the active one; tell what is active then."""
        problem = request_problem(request)
        if problem is not None:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        fault = fault_from(request)
        if fault is None:
            self._board.clear()
            _LOG.warning("drill: cleared")
            return admin_pb2.DrillResponse(active="no drill is active")
        if isinstance(fault, drill.Step):
            # It happens once, in the next cycle: there is no end to tell.
            self._board.start(fault, self._now_boot_ns())
            _LOG.warning("%s", drill.describe(fault))
            return admin_pb2.DrillResponse(active=drill.describe(fault))
        ends_boot_ns = self._now_boot_ns() + request.duration_ns
        self._board.start(fault, ends_boot_ns)
        sentence = f"{drill.describe(fault)}, for {request.duration_ns / units.NS_PER_S:g} s"
        _LOG.warning("%s", sentence)
        return admin_pb2.DrillResponse(active=sentence, ends_boot_ns=ends_boot_ns)

    def ListLeases(  # noqa: N802 - named by the API
        self, request: admin_pb2.ListLeasesRequest, context: grpc.ServicerContext
    ) -> admin_pb2.ListLeasesResponse:
        """Answer with every open lease."""
        limits = self._desk.limits
        return admin_pb2.ListLeasesResponse(leases=[lease_message(one, limits) for one in self._desk.open_leases()])

    def BreakLease(  # noqa: N802 - named by the API
        self, request: admin_pb2.BreakLeaseRequest, context: grpc.ServicerContext
    ) -> admin_pb2.BreakLeaseResponse:
        """End the lease of the request against its job's will."""
        broken = self._desk.break_lease(request.lease_id)
        if broken is None:
            context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"no open lease {shown(request.lease_id)}; see `clockgatectl leases`",
            )
        lease, ban = broken
        _LOG.warning("the operator broke lease %s of job %s, rank %d", lease.lease_id, lease.job, lease.rank)
        return admin_pb2.BreakLeaseResponse(
            lease=lease_message(lease, self._desk.limits), refused_until_boot_ns=ban.until_boot_ns
        )


def request_problem(request: admin_pb2.DrillRequest) -> str | None:
    """What is wrong with a Drill request, for the asker; None when it can be carried out."""
    kind = request.WhichOneof("fault")
    if kind is None:
        return "fault: missing; wanted one of freeze_source, add_offset, step_clock, clear"
    for name, size_ns in (("offset_ns", request.add_offset.offset_ns), ("jump_ns", request.step_clock.jump_ns)):
        if abs(size_ns) > _LONGEST_NS:
            return f"{name} = {size_ns}: wanted at most one hour ({_LONGEST_NS}) in either direction"
    if kind in ("freeze_source", "add_offset") and not 1 <= request.duration_ns <= _LONGEST_NS:
        return f"duration_ns = {request.duration_ns}: wanted 1 to {_LONGEST_NS} (one hour)"
    return None
