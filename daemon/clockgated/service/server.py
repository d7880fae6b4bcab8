"""The two servers: what only reads on the open socket, the same and what changes the node on the admin socket."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc
from clockgate.v1 import admin_pb2_grpc, clock_pb2_grpc, gate_pb2_grpc, tuning_pb2_grpc
from clockgate.wire import stubs

from clockgated.config import ApiConfig
from clockgated.drill import DrillBoard
from clockgated.lease_desk import LeaseDesk
from clockgated.memory.epochs import Disruption
from clockgated.publish import Publisher
from clockgated.service import reflection, sockets
from clockgated.service.admin import AdminServicer
from clockgated.service.admission import Admission
from clockgated.service.clock import ClockServicer
from clockgated.service.gate import GateServicer
from clockgated.service.health import CLOCK_SERVICE, HealthServicer
from clockgated.service.reach import ReachWatch

READ_SERVICES = (CLOCK_SERVICE, "clockgate.v1.Gate", stubs.HEALTH_SERVICE, *stubs.REFLECTION_SERVICES)
ADMIN_SERVICES = (*READ_SERVICES, "clockgate.v1.Admin")
TUNING_SERVICE = "clockgate.v1.Tuning"

Tuning = tuple[tuning_pb2_grpc.TuningServicer, tuning_pb2_grpc.TuningServicer]
"""What answers for tuning on the read socket and on the admin socket."""

_OPTIONS = (
    # Requests are small; a large one is a mistake or an attack on memory.
    ("grpc.max_receive_message_length", 64 * 1024),
    # A connection costs a descriptor, and grpc has no limit on their number: those that never speak HTTP/2, and those
    # that carry no call for a while, are closed. A client that wants one again connects again by itself.
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.max_connection_idle_ms", 60_000),
)


def _no_journal() -> Sequence[Disruption]:
    return ()


class Api:
    """Serves the published reading from construction until `stop`. Raises SocketError when a socket cannot be had.

    `desk` holds the leases of both sockets, `epochs` reads the journal, oldest first; without `tuning`
    that service is not offered. Construct it before other threads
    create files: modes are set by the process's umask.
    """

    def __init__(
        self,
        config: ApiConfig,
        publisher: Publisher,
        board: DrillBoard,
        desk: LeaseDesk | None = None,
        epochs: Callable[[], Sequence[Disruption]] = _no_journal,
        *,
        tuning: Tuning | None = None,
    ) -> None:
        self._publisher = publisher
        self._desk = desk or LeaseDesk()
        self._epochs = epochs
        self._stopping = threading.Event()
        self._admissions: list[Admission] = []
        self._servers: list[grpc.Server] = []
        self._reach: ReachWatch | None = None
        # Both before either is served: the loser of a race must not take one of the two.
        read_claim = sockets.claim(config.socket, private=False)
        self._claims = [read_claim]
        try:
            admin_claim = sockets.claim(config.admin_socket, private=True)
            self._claims.append(admin_claim)
            catalog = reflection.default_catalog()
            further = (TUNING_SERVICE,) if tuning is not None else ()
            read = self._server(config.max_streams, (*READ_SERVICES, *further), catalog)
            admin = self._server(config.max_streams, (*ADMIN_SERVICES, *further), catalog)
            admin_pb2_grpc.add_AdminServicer_to_server(AdminServicer(board, self._desk), admin)
            for server, servicer in zip((read, admin), tuning or (), strict=False):
                tuning_pb2_grpc.add_TuningServicer_to_server(servicer, server)
            read_claim.bind(lambda path: read.add_insecure_port(f"unix:{path}"))
            admin_claim.bind(lambda path: admin.add_insecure_port(f"unix:{path}"))
        except BaseException:
            self.stop(grace_s=0)
            raise
        for server in self._servers:
            server.start()
        self._reach = ReachWatch([claim.path for claim in self._claims])

    def lost(self) -> str | None:
        """Which of the two sockets no client reaches any more, and why; None while both serve."""
        return None if self._reach is None else self._reach.lost()

    def stop(self, grace_s: float = 0.5) -> None:
        """End streams with UNAVAILABLE, let running calls finish for `grace_s`, and give the sockets up."""
        self._stopping.set()
        if self._reach is not None:
            self._reach.close()
        self._publisher.close()
        self._desk.stop()
        for stopped in [server.stop(grace_s) for server in self._servers]:
            stopped.wait()
        for admission in self._admissions:
            admission.close()
        for claim in self._claims:
            claim.release()

    def _server(self, max_streams: int, services: tuple[str, ...], catalog: reflection.Catalog) -> grpc.Server:
        admission = Admission(max_streams)
        self._admissions.append(admission)
        executor = ThreadPoolExecutor(admission.workers, thread_name_prefix="api")
        server = grpc.server(executor, interceptors=[admission], options=_OPTIONS)
        self._servers.append(server)
        clock = ClockServicer(self._publisher, self._stopping, self._epochs)
        clock_pb2_grpc.add_ClockServicer_to_server(clock, server)
        gate_pb2_grpc.add_GateServicer_to_server(GateServicer(self._publisher, self._desk), server)
        health = HealthServicer(self._publisher, services, self._stopping)
        handlers = [stubs.health_handler(health)]
        for service in stubs.REFLECTION_SERVICES:
            answer = reflection.answerer(service, catalog, services)
            handlers.append(stubs.reflection_handler(service, answer))
        server.add_generic_rpc_handlers(tuple(handlers))
        return server
