"""The endpoint of metrics: HTTP/1.0 on one address, for a few clients at once, each for a few seconds at most.

Whoever connects and then sends or reads slowly is closed in favour of the next: no client keeps others out, and none
costs more than a thread that waits.
"""

import contextlib
import errno
import logging
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer

from clockgated.config_values import TcpAddress

_LOG = logging.getLogger(__name__)
_MOST_CLIENTS = 16
_LONGEST_S = 5.0
_RETRY_S = 15.0
_QUEUE_S = 0.05
"""A scrape takes milliseconds. At 16 clients a full queue of silent ones passes in less than Prometheus' 10 s."""
_TICK_S = 0.5
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Page = Callable[[str], tuple[str, bytes]]
"""An Accept header -> content type and page."""


class MetricsServer:
    """Serves `page` at `address` from construction until `close`. While the address is taken it tries again."""

    def __init__(self, address: TcpAddress, page: Page) -> None:
        self._address = address
        self._page = page
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving; does not wait for clients."""
        self._closing.set()

    def join(self, patience_s: float) -> bool:
        """Wait until the address is free again; False when that takes longer."""
        self._thread.join(patience_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        is_told = False
        while not self._closing.is_set():
            try:
                server = _Server(self._address, self._page)
            except OSError as error:
                if not is_told:
                    _LOG.warning(
                        "metrics: %s cannot be served: %s; free it, or set another [metrics] address; tried again "
                        "every %g s", self._address, error.strerror, _RETRY_S,
                    )  # fmt: skip
                is_told = True
                self._closing.wait(_RETRY_S)
                continue
            _LOG.info("metrics: served at http://%s/metrics", self._address)
            with server:
                while not self._closing.is_set():
                    server.handle_request()
                    server.end_slow_clients()
            return


class _Server(HTTPServer):
    """Answers each client on a thread of its own."""

    timeout = _TICK_S
    request_queue_size = 128

    def __init__(self, address: TcpAddress, page: Page) -> None:
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.page = page
        self._changed = threading.Condition()
        self._clients: OrderedDict[socket.socket, float] = OrderedDict()
        super().__init__((address.host, address.port), _Handler)

    def server_bind(self) -> None:
        """Bind without looking up a name for the address, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def get_request(self) -> tuple[socket.socket, object]:
        """The next client. Without a descriptor for it, not before a moment has passed: it stays in the queue."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                time.sleep(_TICK_S)
            raise

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        """Answer on a thread. When there are too many clients the next one waits for a moment, then the oldest goes."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._clients) < _MOST_CLIENTS, _QUEUE_S):
                _end(self._clients.popitem(last=False)[0])
            self._clients[request] = time.monotonic()
        threading.Thread(target=self._answer, args=(request, client_address), name="scrape", daemon=True).start()

    def end_slow_clients(self) -> None:
        """Close those that had their time."""
        with self._changed:
            oldest_s = time.monotonic() - _LONGEST_S
            for request in [one for one, since_s in self._clients.items() if since_s < oldest_s]:
                del self._clients[request]
                _end(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: a client that went away is no trouble of ours."""

    def _answer(self, request: socket.socket, client_address: object) -> None:
        try:
            # The client may go away, or be closed for being slow.
            with contextlib.suppress(OSError):
                self.finish_request(request, client_address)
        finally:
            with self._changed:
                self._clients.pop(request, None)
                self._changed.notify_all()
            self.shutdown_request(request)


class _Handler(BaseHTTPRequestHandler):
    """GET /metrics, and a line that says so for everything else."""

    server: _Server
    timeout = _LONGEST_S
    server_version, sys_version = "clockgated", ""

    def do_GET(self) -> None:
        """Send the page."""
        if self.path.partition("?")[0] != "/metrics":
            self._send(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"metrics are at /metrics\n")
            return
        content_type, page = self.server.page(self.headers.get("Accept", ""))
        self._send(HTTPStatus.OK, content_type, page)

    def log_message(self, format: str, *words: object) -> None:
        """Nothing: a scrape every few seconds is no news."""

    def _send(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _end(request: socket.socket) -> None:
    # It may be closed already.
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)
