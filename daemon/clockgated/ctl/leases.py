"""No-step leases: what holds the clock back from a step, and how an operator ends it."""

from collections.abc import Sequence
from typing import Any

import grpc
from clockgate.v1 import admin_pb2, admin_pb2_grpc, gate_pb2

from clockgated import units
from clockgated.ctl.address import DEADLINE_S, details, status_code
from clockgated.ctl.status import printable
from clockgated.errors import ClockgateError


class NoAdminError(ClockgateError):
    """The socket that was asked serves no leases."""


class NoSuchLeaseError(ClockgateError):
    """There is no open lease of that name."""


def read(channel: grpc.Channel) -> Sequence[gate_pb2.Lease]:
    """Every open lease. Raises NoAdminError, or grpc.RpcError when the daemon cannot be reached."""
    try:
        stub = admin_pb2_grpc.AdminStub(channel)
        return stub.ListLeases(admin_pb2.ListLeasesRequest(), timeout=DEADLINE_S).leases
    except grpc.RpcError as error:
        raise _refused(error) from None


def break_lease(channel: grpc.Channel, lease_id: str, now_boot_ns: int) -> str:
    """End a lease; returns one sentence. Raises NoSuchLeaseError, NoAdminError, or grpc.RpcError."""
    try:
        stub = admin_pb2_grpc.AdminStub(channel)
        answer = stub.BreakLease(admin_pb2.BreakLeaseRequest(lease_id=lease_id), timeout=DEADLINE_S)
    except grpc.RpcError as error:
        raise _refused(error) from None
    refused_s = max(0, answer.refused_until_boot_ns - now_boot_ns) / units.NS_PER_S
    return f"broken: {_named(answer.lease)}; its job gets no other lease for {refused_s:.0f} s"


def _refused(error: grpc.RpcError) -> ClockgateError | grpc.RpcError:
    code = status_code(error)
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return NoAdminError("leases are served on the admin socket only; name it with --admin-address")
    return NoSuchLeaseError(details(error)) if code == grpc.StatusCode.NOT_FOUND else error


def as_json(leases: Sequence[gate_pb2.Lease], now_boot_ns: int) -> dict[str, Any]:
    """The leases under stable keys with units, the oldest first. Stamps are CLOCK_BOOTTIME of this node."""
    return {
        "leases": [
            {
                "lease_id": one.lease_id,
                "job": one.job,
                "rank": one.rank,
                "opened_boot_ns": one.opened_boot_ns,
                "checked_boot_ns": one.checked_boot_ns,
                "ends_boot_ns": one.ends_boot_ns,
                "open_ns": max(0, now_boot_ns - one.opened_boot_ns),
                "left_ns": max(0, one.ends_boot_ns - now_boot_ns),
            }
            for one in leases
        ]
    }


def render(leases: Sequence[gate_pb2.Lease], now_boot_ns: int) -> str:
    """One line for each, the oldest first: whose it is, for how long it is open, and when it ends without a Check."""
    if not leases:
        return "no lease is open: the clock may be stepped"
    lines = []
    for one in leases:
        open_s = max(0, now_boot_ns - one.opened_boot_ns) / units.NS_PER_S
        left_s = max(0, one.ends_boot_ns - now_boot_ns) / units.NS_PER_S
        lines.append(f"{_named(one)}: open for {open_s:.0f} s, ends in {left_s:.0f} s without a Check")
    return "\n".join(lines)


def _named(lease: gate_pb2.Lease) -> str:
    return f"lease {printable(lease.lease_id)} of job {printable(lease.job)}, rank {lease.rank}"
