"""The endpoint itself: who is answered, and what slow or silent clients can do."""

import errno
import logging
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import HTTPServer

import pytest
from clockgated.config_values import TcpAddress
from clockgated.metrics import server
from clockgated.metrics.server import MetricsServer
from support.ports import free_port

PAGE = b"# HELP a b\n" * 2000


def page(accept: str) -> tuple[str, bytes]:
    return f"text/plain; asked={accept[:5]}", PAGE


@pytest.fixture
def address() -> Iterator[TcpAddress]:
    place = TcpAddress("127.0.0.1", free_port())
    running = MetricsServer(place, page)
    wait_for(place)
    yield place
    running.close()
    assert running.join(10)


def wait_for(place: TcpAddress) -> None:
    due = time.monotonic() + 20
    while True:
        try:
            socket.create_connection((place.host, place.port), 1).close()
            return
        except OSError:
            assert time.monotonic() < due
            time.sleep(0.05)


def get(place: TcpAddress, path: str = "/metrics", **headers: str) -> tuple[int, str, bytes]:
    request = urllib.request.Request(f"http://{place}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.status, answer.headers["Content-Type"], answer.read()


def is_closed_after_a_byte(client: socket.socket) -> bool:
    try:
        client.sendall(b"G")
        client.settimeout(0.1)
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_the_page_is_at_metrics_and_nothing_else_is(address: TcpAddress) -> None:
    assert get(address, Accept="xyzzyx") == (200, "text/plain; asked=xyzzy", PAGE)
    assert get(address, "/metrics?x=1")[0] == 200
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(address, "/")
    assert (caught.value.code, caught.value.read()) == (404, b"metrics are at /metrics\n")
    caught.value.close()


def test_a_hundred_scrapes_at_once_are_all_answered(address: TcpAddress) -> None:
    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(lambda _: get(address), range(100)))
    assert {(status, len(body)) for status, _, body in answers} == {(200, len(PAGE))}


def test_clients_that_say_nothing_keep_nobody_out(address: TcpAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_LONGEST_S", 60.0)
    silent = [socket.create_connection((address.host, address.port), 5) for _ in range(40)]
    try:
        assert get(address)[0] == 200
    finally:
        for one in silent:
            one.close()


def test_a_full_queue_of_silent_clients_passes_before_a_scrape_is_given_up() -> None:
    longest_wait_s = server._QUEUE_S * server._Server.request_queue_size
    assert longest_wait_s < 10 - 1  # the time that Prometheus waits by default, and some for the page


def test_without_descriptors_the_server_waits_rather_than_spins(
    address: TcpAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    def refuse(self: HTTPServer) -> tuple[socket.socket, object]:
        nonlocal tries
        tries += 1
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as exhausted:
        exhausted.setattr(HTTPServer, "get_request", refuse)
        with socket.create_connection((address.host, address.port), 20):
            time.sleep(1.2)
            assert 1 <= tries <= 5
    assert get(address)[0] == 200


def test_a_client_that_says_nothing_is_closed(address: TcpAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_LONGEST_S", 0.2)
    with socket.create_connection((address.host, address.port), 20) as silent:
        assert silent.recv(100) == b""


def test_a_client_that_sends_a_byte_now_and_then_is_closed_as_well(
    address: TcpAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_LONGEST_S", 0.5)
    with socket.create_connection((address.host, address.port), 20) as slow:
        due = time.monotonic() + 20
        while not is_closed_after_a_byte(slow):
            assert time.monotonic() < due


@pytest.mark.parametrize(
    "garbage", [b"\x00\xff" * 300 + b"\r\n\r\n", b"GET\r\n\r\n", b"POST /metrics HTTP/1.1\r\n\r\n"]
)
def test_garbage_is_refused_and_harms_nobody(address: TcpAddress, garbage: bytes) -> None:
    with socket.create_connection((address.host, address.port), 20) as wild:
        wild.sendall(garbage)
        answer = wild.recv(100)
        assert b"200" not in answer
    assert get(address)[0] == 200


def test_an_address_that_is_taken_is_told_once_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "_RETRY_S", 0.05)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        place = TcpAddress("127.0.0.1", holder.getsockname()[1])
        with caplog.at_level(logging.WARNING):
            running = MetricsServer(place, page)
            time.sleep(0.5)
    wait_for(place)
    assert get(place)[0] == 200
    running.close()
    assert running.join(10)
    assert len([one for one in caplog.records if "cannot be served" in one.message]) == 1


def test_closing_frees_the_address_at_once() -> None:
    place = TcpAddress("127.0.0.1", free_port())
    for _ in range(2):
        running = MetricsServer(place, page)
        wait_for(place)
        assert get(place)[0] == 200
        running.close()
        assert running.join(10)
    assert "metrics" not in {thread.name for thread in threading.enumerate()}
