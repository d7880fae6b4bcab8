"""`clockgatectl health` and `clockgatectl fabric`: ask for the machine around the clock."""

import argparse
import json
import os
import sys
from typing import Any

import grpc
from clockgate.v1 import node_pb2, node_pb2_grpc

from clockgated.ctl import address, again, fabric_view, health_view
from clockgated.ctl.tune import plain
from clockgated.errors import ClockgateError

EXIT_YES, EXIT_NO = 0, 1
_FABRIC_DEADLINE_S = 6.0
_WATCH_INTERVAL_S = 2.0
_CLEAR_SCREEN = "\x1b[H\x1b[J"
_FAIL_ON = {
    "warning": (node_pb2.HEALTH_STATE_DEGRADED, node_pb2.HEALTH_STATE_UNHEALTHY),
    "critical": (node_pb2.HEALTH_STATE_UNHEALTHY,),
}


class NodeUnknownError(ClockgateError):
    """The daemon that answers cannot tell of its node."""


def add(commands: Any) -> None:
    """Add both commands to the subparsers of clockgatectl."""
    health = commands.add_parser(
        "health", help="whether this node is fit to train on. Exit 0 healthy, 1 not, 3 the daemon is unreachable"
    )
    health.add_argument("--json", action="store_true", help="for scripts: the names of the API, and exit_code")
    health.add_argument("--watch", action="store_true", help="again every two seconds, until interrupted")
    health.add_argument(
        "--fail-on",
        choices=_FAIL_ON,
        default="warning",
        help="from which severity on the node is not healthy (default: warning)",
    )
    health.set_defaults(command=_health)
    fabric = commands.add_parser("fabric", help="links, RDMA ports with their GIDs, GPUs and what joins them, peers")
    fabric.add_argument("--json", action="store_true", help="for scripts: the names of the API")
    fabric.set_defaults(command=_fabric)


def exit_code(health: node_pb2.NodeHealth, fail_on: str) -> int:
    """0 unless the state is one of those that `fail_on` calls not healthy."""
    return EXIT_NO if health.state in _FAIL_ON[fail_on] else EXIT_YES


def _health(options: argparse.Namespace) -> int:
    path = address.chosen(options, os.environ)
    with address.connect(path) as channel:
        if options.watch:
            return again.again(lambda: _show_health(channel, path, options), _WATCH_INTERVAL_S)
        return _show_health(channel, path, options)


def _show_health(channel: grpc.Channel, path: address.Address, options: argparse.Namespace) -> int:
    try:
        answer = node_pb2_grpc.NodeStub(channel).GetHealth(node_pb2.GetHealthRequest(), timeout=address.DEADLINE_S)
    except grpc.RpcError as error:
        raise _refused(path, error) from None
    health, code = answer.health, exit_code(answer.health, options.fail_on)
    is_terminal = sys.stdout.isatty()
    if options.json:
        shown = {**plain(health), "exit_code": code}
        print(json.dumps(shown, indent=None if options.watch else 2), flush=True)
    else:
        before = _CLEAR_SCREEN if options.watch and is_terminal else ""
        after = "\n" if options.watch and not is_terminal else ""
        in_colour = is_terminal and not os.environ.get("NO_COLOR")
        print(before + health_view.render(health, in_colour=in_colour) + after, flush=True)
    return code


def _fabric(options: argparse.Namespace) -> int:
    path = address.chosen(options, os.environ)
    with address.connect(path) as channel:
        try:
            answer = node_pb2_grpc.NodeStub(channel).GetFabric(node_pb2.GetFabricRequest(), timeout=_FABRIC_DEADLINE_S)
        except grpc.RpcError as error:
            raise _refused(path, error) from None
    print(json.dumps(plain(answer.fabric), indent=2) if options.json else fabric_view.render(answer.fabric))
    return EXIT_YES


def _refused(path: address.Address, error: grpc.RpcError) -> ClockgateError:
    """UNAVAILABLE comes from the daemon itself as long as its first look is not over."""
    if address.status_code(error) == grpc.StatusCode.UNIMPLEMENTED:
        return NodeUnknownError("this clockgated tells nothing of its node; update it")
    if "first look" in address.details(error):
        return address.UnreachableError(f"{path}: {address.details(error)}")
    return address.unreachable(path, error)
