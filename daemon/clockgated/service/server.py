"""The servers: what only reads on the open socket and, where asked for, by TCP; on the admin socket the same and what
changes the node.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc
from clockgate.v1 import admin_pb2_grpc, clock_pb2_grpc, gate_pb2_grpc, node_pb2_grpc, tuning_pb2_grpc
from clockgate.wire import stubs

from clockgated.config import ApiConfig
from clockgated.drill import DrillBoard
from clockgated.lease_desk import LeaseDesk
from clockgated.memory.epochs import Disruption
from clockgated.node.board import NodeBoard
from clockgated.publish import Publisher
from clockgated.service import reflection, sockets, tcp
from clockgated.service.admin import AdminServicer
from clockgated.service.admission import Admission
from clockgated.service.clock import ClockServicer
from clockgated.service.gate import GateServicer
from clockgated.service.health import CLOCK_SERVICE, HealthServicer
from clockgated.service.node import NodeServicer
from clockgated.service.reach import ReachWatch
from clockgated.service.tally import StreamTally
from clockgated.service.tls import Certificates

READ_SERVICES = (CLOCK_SERVICE, "clockgate.v1.Gate", stubs.HEALTH_SERVICE, *stubs.REFLECTION_SERVICES)
ADMIN_SERVICES = (*READ_SERVICES, "clockgate.v1.Admin")
TUNING_SERVICE, NODE_SERVICE = "clockgate.v1.Tuning", "clockgate.v1.Node"

Tuning = tuple[tuning_pb2_grpc.TuningServicer, tuning_pb2_grpc.TuningServicer]
"""What answers for tuning on the read socket and on the admin socket."""

_GRPC_LOG = "grpc._cython.cygrpc"

_SERVERS = ("read", "admin", "tcp")
"""In the order in which they are made."""

_OPTIONS = (
    # Requests are small; a large one is a mistake or an attack on memory. So is a compressed one, which is small only
    # until it is unpacked: the bit set holds "identity" alone.
    ("grpc.max_receive_message_length", 64 * 1024),
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # What a client takes without asking for more: a larger answer is ours to be told about.
    ("grpc.max_send_message_length", 4 * 1024 * 1024),
    # Calls of one connection; those beyond wait at the client.
    ("grpc.max_concurrent_streams", 100),
    # A connection costs a descriptor, and grpc has no limit on their number: those that never speak HTTP/2, and those
    # that carry no call for a while, are closed. A client that wants one again connects again by itself.
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.max_connection_idle_ms", 60_000),
    # A client may ask every ten seconds whether we are there; one that asks more often for its own sake is sent away.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    # A second daemon on a TCP port would otherwise get every other connection, without a word.
    ("grpc.so_reuseport", 0),
)


def _no_journal() -> Sequence[Disruption]:
    return ()


def _is_worth_telling(record: logging.LogRecord) -> bool:
    """A traceback comes from grpc for every name of metadata that is no UTF-8: anybody could fill the log with them."""
    return not str(record.msg).startswith("Invalid encoding on")


class Api:
    """Serves the published reading from construction until `stop`. Raises SocketError when a socket cannot be had.

    `desk` holds the leases of all servers, `epochs` reads the journal, oldest first; without `tuning` or `node` that
    service is not offered. Raises ConfigError when TCP cannot be served as configured. Construct it before other
    threads create files: modes are set by the process's umask.
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
        node: NodeBoard | None = None,
    ) -> None:
        logging.getLogger(_GRPC_LOG).addFilter(_is_worth_telling)
        self._publisher = publisher
        self._desk = desk or LeaseDesk()
        self._node = node
        self._epochs = epochs
        self._stopping = threading.Event()
        self._admissions: list[Admission] = []
        self._servers: list[grpc.Server] = []
        self._reach: ReachWatch | None = None
        self._certificates: Certificates | None = None
        # Both before either is served: the loser of a race must not take one of the two.
        read_claim = sockets.claim(config.socket, private=False)
        self._claims = [read_claim]
        try:
            admin_claim = sockets.claim(config.admin_socket, private=True)
            self._claims.append(admin_claim)
            catalog = reflection.default_catalog()
            offered = ((TUNING_SERVICE, tuning), (NODE_SERVICE, node))
            further = tuple(name for name, one in offered if one is not None)
            read = self._server(Admission(config.max_streams), (*READ_SERVICES, *further), catalog)
            admin = self._server(Admission(config.max_streams), (*ADMIN_SERVICES, *further), catalog)
            admin_pb2_grpc.add_AdminServicer_to_server(AdminServicer(board, self._desk), admin)
            reading = [read]
            if config.tcp is not None:
                rules = Admission(config.max_streams, config.tls_clients)
                reading.append(self._server(rules, (*READ_SERVICES, *further), catalog, tcp.OPTIONS))
                self._certificates = tcp.open_port(reading[1], config.tcp, config.tls)
            if tuning is not None:
                for server in reading:
                    tuning_pb2_grpc.add_TuningServicer_to_server(tuning[0], server)
                tuning_pb2_grpc.add_TuningServicer_to_server(tuning[1], admin)
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

    def tallies(self) -> dict[str, StreamTally]:
        """The streams of each server: "read", "admin" and, where it is served, "tcp"."""
        return {name: one.tally for name, one in zip(_SERVERS, self._admissions, strict=False)}

    def stop(self, grace_s: float = 0.5) -> None:
        """End streams with UNAVAILABLE, let running calls finish for `grace_s`, and give the sockets up."""
        self._stopping.set()
        if self._reach is not None:
            self._reach.close()
        self._publisher.close()
        self._desk.stop()
        if self._node is not None:
            self._node.close()
        for stopped in [server.stop(grace_s) for server in self._servers]:
            stopped.wait()
        for admission in self._admissions:
            admission.close()
        if self._certificates is not None:
            self._certificates.close()
        for claim in self._claims:
            claim.release()

    def _server(
        self,
        admission: Admission,
        services: tuple[str, ...],
        catalog: reflection.Catalog,
        options: tuple[tuple[str, int], ...] = (),
    ) -> grpc.Server:
        self._admissions.append(admission)
        server = grpc.server(
            ThreadPoolExecutor(admission.workers, thread_name_prefix="api"),
            interceptors=[admission],
            options=(*_OPTIONS, *options),
            maximum_concurrent_rpcs=admission.most_calls,
        )
        self._servers.append(server)
        clock = ClockServicer(self._publisher, self._stopping, self._epochs)
        clock_pb2_grpc.add_ClockServicer_to_server(clock, server)
        gate_pb2_grpc.add_GateServicer_to_server(GateServicer(self._publisher, self._desk), server)
        if self._node is not None:
            node_pb2_grpc.add_NodeServicer_to_server(NodeServicer(self._node, self._stopping), server)
        health = HealthServicer(self._publisher, services, self._stopping)
        handlers = [stubs.health_handler(health)]
        for service in stubs.REFLECTION_SERVICES:
            answer = reflection.answerer(service, catalog, services)
            handlers.append(stubs.reflection_handler(service, answer))
        server.add_generic_rpc_handlers(tuple(handlers))
        return server
