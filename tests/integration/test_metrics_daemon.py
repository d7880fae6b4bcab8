"""A real daemon's metrics: what promtool says of them, and that no scraper disturbs the clock."""

import re
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from clockgate.v1 import clock_pb2, clock_pb2_grpc
from clockgated.metrics import families_clock, families_node
from support.daemon import SOURCE_ROOTS, Clockgated, clockgated, toml
from support.oldest import oldest_python
from support.ports import free_port
from support.tools import require_tool

pytestmark = [pytest.mark.integration, pytest.mark.timeout(200)]

POLL_S = 0.2
NODE_FAMILIES = {one.name for one in families_node.ALL}
ALL_FAMILIES = {one.name for one in families_clock.ALL} | NODE_FAMILIES


def config(folder: Path, address: str) -> str:
    (folder / "recorded.jsonl").write_text('{"after_s": 0, "bound_ns": 200000, "identity": "ntp:192.0.2.1"}\n')
    return toml(
        folder,
        clock=f'source = "recorded"\npoll_interval_s = {POLL_S}\nsync_cycles = 1',
        extra=f'[recorded]\nfile = "{folder / "recorded.jsonl"}"',
        metrics=address,
    )


@pytest.fixture(scope="module")
def address() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, address: str) -> Iterator[Clockgated]:
    folder = tmp_path_factory.mktemp("metrics")
    with clockgated(folder, config(folder, address)) as running:
        yield running


def scrape(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def whole_page(address: str) -> str:
    """The page once the first reading and the first look at the node are in it."""
    due = time.monotonic() + 30
    while True:
        try:
            page = scrape(address)
            if 'clockgate_clock_state{state="synchronized"} 1.0' in page and "clockgate_node_look_age" in page:
                return page
        except OSError:
            # Not served yet.
            pass
        assert time.monotonic() < due, "no whole page"
        time.sleep(0.1)


def families(page: str) -> set[str]:
    """The names after TYPE; the library writes those of counters with _total in some releases, without in others."""
    return {name.removesuffix("_total") for name in re.findall(r"^# TYPE (\S+) ", page, re.MULTILINE)}


def number(page: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def test_every_documented_metric_is_exported_and_promtool_finds_no_fault(daemon: Clockgated, address: str) -> None:
    page = whole_page(address)
    assert families(page) == {name.removesuffix("_total") for name in ALL_FAMILIES}
    line = [str(require_tool("promtool")), "check", "metrics"]
    checked = subprocess.run(line, input=page, capture_output=True, text=True, check=False, timeout=60)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_streams_leases_and_cycles_are_counted(daemon: Clockgated, address: str) -> None:
    before = whole_page(address)
    with daemon.channel() as channel:
        stream = clock_pb2_grpc.ClockStub(channel).WatchReadings(clock_pb2.WatchReadingsRequest(), timeout=60)
        assert next(iter(stream)).reading.sequence > 0
        due = time.monotonic() + 30
        while number(page := scrape(address), 'clockgate_streams{server="read"}') != 1:
            assert time.monotonic() < due
            time.sleep(0.2)
    assert number(before, 'clockgate_streams{server="read"}') == 0
    assert number(page, "clockgate_leases") == 0
    name = 'clockgate_cycles_total{outcome="published"}'
    assert number(page, name) > number(before, name)
    assert number(page, "clockgate_cycle_duration_seconds_count") >= number(before, name)


def test_scrapers_of_all_kinds_do_not_disturb_the_clock(daemon: Clockgated, address: str) -> None:
    whole_page(address)
    host, port = address.split(":")
    stop = threading.Event()
    slow = [socket.create_connection((host, int(port)), 10) for _ in range(30)]
    ages_ns: list[int] = []

    def ask() -> None:
        with daemon.channel() as channel:
            stub = clock_pb2_grpc.ClockStub(channel)
            while not stop.is_set():
                ages_ns.append(stub.GetReading(clock_pb2.GetReadingRequest(), timeout=10).reading.age_ns)
                stop.wait(0.05)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        with ThreadPoolExecutor(100) as pool:
            pages = list(pool.map(lambda _: scrape(address), range(100)))
    except grpc.RpcError as error:
        pytest.fail(f"a call beside the scrapes failed: {error}")
    finally:
        stop.set()
        asking.join(30)
        for one in slow:
            one.close()
    assert len(pages) == 100
    # Readings went on meanwhile: an age of several cycles would show that one was held up.
    assert ages_ns
    assert max(ages_ns) < 10 * POLL_S * 1e9


def test_without_the_library_everything_else_works_and_the_log_says_so(tmp_path: Path) -> None:
    broken = tmp_path / "broken/prometheus_client"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text('raise ImportError("not installed")\n')
    (tmp_path / "run-it").mkdir()
    address = f"127.0.0.1:{free_port()}"
    text = config(tmp_path / "run-it", address)
    with clockgated(tmp_path / "run-it", text, PYTHONPATH=f"{broken.parent}:{SOURCE_ROOTS}") as running:
        assert running.ctl("health").returncode in (0, 1)
        assert running.log.read_text().count("metrics: none are served") == 1


def test_the_oldest_library_serves_the_same_metrics(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with clockgated(tmp_path, config(tmp_path, address), python=oldest_python()):
        page = whole_page(address)
    assert families(page) == {name.removesuffix("_total") for name in ALL_FAMILIES}


def test_a_reload_moves_the_endpoint_and_turns_it_off(tmp_path: Path) -> None:
    address, other = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with clockgated(tmp_path, config(tmp_path, address)) as daemon:
        whole_page(address)
        daemon.config.write_text(config(tmp_path, other))
        daemon.process.send_signal(1)
        whole_page(other)
        daemon.config.write_text(config(tmp_path, ""))
        daemon.process.send_signal(1)
        due = time.monotonic() + 30
        while is_served(other):
            assert time.monotonic() < due
            time.sleep(0.1)
        assert not is_served(address)
        assert daemon.ctl("status").returncode == 0


def is_served(address: str) -> bool:
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True
