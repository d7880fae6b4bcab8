"""clockgate.v1.Node: what was last seen of the machine, once or as a stream. Never looks by itself."""

import threading
import time
from collections.abc import Callable, Iterator

import grpc
from clockgate.v1 import node_pb2, node_pb2_grpc

from clockgated import host
from clockgated.node.board import NodeBoard
from clockgated.node.judge import is_changed
from clockgated.node.model import NodeHealth
from clockgated.node.watch import EXTRAS_EVERY_NS
from clockgated.service.node_convert import fabric_message, health_message

# A stream owes a message every five seconds; the rest is for getting it out.
_LONGEST_QUIET_S = 4.5
_RECHECK_S = 0.9
_FIRST_LOOK_S = 1.0
_EXTRAS_S = 2.0
_WAITING_AT_ONCE = 4
"""Calls that may wait, each on a worker: those beyond are answered with what there is."""


class NodeServicer(node_pb2_grpc.NodeServicer):
    """Reads the board. Streams end with UNAVAILABLE once `stopping` is set."""

    def __init__(
        self, board: NodeBoard, stopping: threading.Event, now_boot_ns: Callable[[], int] = host.boot_ns
    ) -> None:
        self._board = board
        self._stopping = stopping
        self._now_boot_ns = now_boot_ns
        self._room = threading.BoundedSemaphore(_WAITING_AT_ONCE)

    def GetHealth(  # noqa: N802 - named by the API
        self, request: node_pb2.GetHealthRequest, context: grpc.ServicerContext
    ) -> node_pb2.GetHealthResponse:
        """Answer with the newest judgement."""
        return node_pb2.GetHealthResponse(health=self._message(self._newest(context)))

    def WatchHealth(  # noqa: N802 - named by the API
        self, request: node_pb2.WatchHealthRequest, context: grpc.ServicerContext
    ) -> Iterator[node_pb2.WatchHealthResponse]:
        """Send the newest judgement now, when a finding comes or goes, and at least every five seconds."""
        health = self._newest(context)
        while not self._stopping.is_set():
            yield node_pb2.WatchHealthResponse(health=self._message(health))
            health = self._next(health, context)
            if not context.is_active():
                return
        context.abort(grpc.StatusCode.UNAVAILABLE, "clockgated is stopping; connect again")

    def GetFabric(  # noqa: N802 - named by the API
        self, request: node_pb2.GetFabricRequest, context: grpc.ServicerContext
    ) -> node_pb2.GetFabricResponse:
        """Answer with what is known of the fabric, once drivers and peers were asked or a short while is over."""
        health = self._with_extras(self._newest(context))
        return node_pb2.GetFabricResponse(fabric=fabric_message(health, self._board.boot_id, self._now_boot_ns()))

    def _message(self, health: NodeHealth) -> node_pb2.NodeHealth:
        return health_message(health, self._board.boot_id, self._now_boot_ns())

    def _newest(self, context: grpc.ServicerContext) -> NodeHealth:
        health = self._board.latest()
        if health is None and self._room.acquire(blocking=False):
            try:
                health = self._board.wait_newer(0, _FIRST_LOOK_S)
            finally:
                self._room.release()
        if health is None:
            context.abort(
                grpc.StatusCode.UNAVAILABLE, "the first look at the node is not over yet; ask again in a second"
            )
        return health

    def _next(self, sent: NodeHealth, context: grpc.ServicerContext) -> NodeHealth:
        """What to send after `sent`, when it is time to."""
        newest, due_s = sent, time.monotonic() + _LONGEST_QUIET_S
        while not self._stopping.is_set() and context.is_active() and not is_changed(sent, newest):
            left_s = due_s - time.monotonic()
            if left_s <= 0:
                break
            newest = self._board.wait_newer(newest.sequence, min(left_s, _RECHECK_S)) or newest
        return newest

    def _with_extras(self, health: NodeHealth) -> NodeHealth:
        if not self._wants_extras(health) or not self._room.acquire(blocking=False):
            return health
        try:
            self._board.ask_extras()
            due_s = time.monotonic() + _EXTRAS_S
            while self._wants_extras(health) and (left_s := due_s - time.monotonic()) > 0:
                newer = self._board.wait_newer(health.sequence, left_s)
                if newer is None:
                    break
                health = newer
            return health
        finally:
            self._room.release()

    def _wants_extras(self, health: NodeHealth) -> bool:
        asked_boot_ns = health.extras_boot_ns
        return asked_boot_ns is None or self._now_boot_ns() - asked_boot_ns > EXTRAS_EVERY_NS
