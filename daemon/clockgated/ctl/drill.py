"""Faults on purpose: values with units in, one Drill request out."""

import re
from decimal import Decimal

import grpc
from clockgate.v1 import admin_pb2, admin_pb2_grpc

from clockgated import units
from clockgated.ctl.address import DEADLINE_S, details, status_code
from clockgated.errors import ClockgateError

# argparse takes "-200ms" for an option; a minus sign (U+2212) in its place gets through and means the same here.
MINUS = "\u2212"

_NS_PER_UNIT = {"ns": 1, "us": units.NS_PER_US, "µs": units.NS_PER_US, "ms": units.NS_PER_MS, "s": units.NS_PER_S}
_LARGEST_NS = 3600 * units.NS_PER_S  # what the daemon takes; more would not even fit the message
_VALUE = re.compile(rf"([+{MINUS}-]?)(\d{{1,12}}(?:\.\d{{1,12}})?)(ns|us|µs|ms|s)", re.ASCII)


class DrillRefusedError(ClockgateError):
    """The daemon does not do this drill."""


def protect_minus(argv: list[str]) -> list[str]:
    """`argv` with the sign of negative values with a unit written so that argparse lets it through."""
    return [MINUS + word[1:] if re.match(r"-\d[\d.]*[^\d.]", word) else word for word in argv]


def duration_ns(text: str) -> int:
    """Nanoseconds of a value with its unit: 200ms, 3s, -1.5us. Raises ValueError, which says what was wanted."""
    match = _VALUE.fullmatch(text)
    if match is None:
        raise ValueError(f'"{text.replace(MINUS, "-")}": wanted a number with a unit, for instance 200ms or 3s')
    sign, number, unit = match.groups()
    value_ns = int(Decimal(number) * _NS_PER_UNIT[unit])
    if value_ns > _LARGEST_NS:
        raise ValueError(f'"{text.replace(MINUS, "-")}": wanted at most one hour, 3600s')
    return value_ns if sign in ("", "+") else -value_ns


def request(kind: str, size_ns: int, for_ns: int) -> admin_pb2.DrillRequest:
    """The request for one of freeze, offset, step, clear. `size_ns` is of the offset or step, `for_ns` the duration."""
    match kind:
        case "freeze":
            return admin_pb2.DrillRequest(freeze_source=admin_pb2.FreezeSource(), duration_ns=for_ns)
        case "offset":
            return admin_pb2.DrillRequest(add_offset=admin_pb2.AddOffset(offset_ns=size_ns), duration_ns=for_ns)
        case "step":
            return admin_pb2.DrillRequest(step_clock=admin_pb2.StepClock(jump_ns=size_ns))
        case "clear":
            return admin_pb2.DrillRequest(clear=admin_pb2.Clear())
        case _:
            raise ValueError(f'"{kind}": wanted freeze, offset, step or clear')


def run(channel: grpc.Channel, drill_request: admin_pb2.DrillRequest) -> str:
    """Ask for the drill; returns one sentence on what is active. Raises DrillRefusedError, or grpc.RpcError when the
    daemon cannot be reached.
    """
    try:
        response = admin_pb2_grpc.AdminStub(channel).Drill(drill_request, timeout=DEADLINE_S)
    except grpc.RpcError as error:
        code = status_code(error)
        if code == grpc.StatusCode.UNIMPLEMENTED:
            raise DrillRefusedError(
                "drills are served on the admin socket only; name it with --admin-address"
            ) from None
        if code == grpc.StatusCode.INVALID_ARGUMENT:
            raise DrillRefusedError(f"refused: {details(error)}") from None
        raise
    return response.active
