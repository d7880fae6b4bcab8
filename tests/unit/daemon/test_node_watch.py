"""Looks that hang, the thread that judges, and the calls of the API that tell of it."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from clockgate.v1 import node_pb2, node_pb2_grpc
from clockgated import host
from clockgated.config import ApiConfig, NodeConfig
from clockgated.drill import DrillBoard
from clockgated.node.board import NodeBoard
from clockgated.node.errands import Errands, Part
from clockgated.node.extras import peer_path
from clockgated.node.facts import Disk, Extras, FabricLook, HostLook, LinkExtra, NetLink, PeerPath
from clockgated.node.model import NodeHealth
from clockgated.node.watch import NodeWatch
from clockgated.publish import Publisher
from clockgated.service.server import Api
from support.readings import reading

FAST = NodeConfig(look_interval_s=1)


def until(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    due = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < due
        time.sleep(0.01)


def test_a_look_that_hangs_holds_up_no_other_and_is_not_begun_again() -> None:
    hangs, begun = threading.Event(), []

    def hang() -> int:
        begun.append(1)
        hangs.wait(60)
        return 7

    errands = Errands({"quick": Part(lambda: 1), "hung": Part(hang)})
    try:
        for _ in range(3):
            assert {name: one.value for name, one in errands.look(0.05).items()} == {"quick": 1}
        assert set(errands.overdue()) == {"hung"}
        assert len(begun) == 1
    finally:
        hangs.set()
    until(lambda: "hung" in errands.look(0.05))
    assert errands.look(5)["hung"].value == 7
    assert errands.overdue() == {}


def test_a_look_is_made_no_more_often_than_asked_for() -> None:
    counted: list[int] = []
    errands = Errands({"rare": Part(lambda: counted.append(1), 3600 * 10**9), "other": Part(lambda: None)})
    for _ in range(3):
        errands.look(5)
    assert len(counted) == 1
    errands.look(5, without=frozenset({"other"}))


def test_the_stamp_of_an_answer_is_from_before_its_look() -> None:
    before = host.boot_ns()
    answer = Errands({"slow": Part(lambda: time.sleep(0.02))}).look(5)["slow"]
    assert before <= answer.as_of_boot_ns <= host.boot_ns() - 20_000_000


def test_figures_of_a_peer() -> None:
    assert peer_path("a", [100, 120, 90, 110]) == PeerPath("a", 10, 4, median_us=105, p95_us=120, jitter_us=23)
    assert peer_path("a", [100]) == PeerPath("a", 10, 1, median_us=100, p95_us=100)
    assert peer_path("silent", []) == PeerPath("silent", 10)
    assert peer_path("nameless", None) == PeerPath("nameless")


class Node:
    """A served node whose parts the test sets."""

    def __init__(self, folder: Path) -> None:
        self.host = HostLook(clocksource="tsc")
        self.asked = 0
        self.board = NodeBoard("boot")
        parts = {
            "host": Part(lambda: self.host),
            "disks": Part(lambda: (Disk("/x", 10, 5),)),
            "fabric": Part(lambda: FabricLook((NetLink("eth0", "mlx5", True, True),))),
            "extras": Part(self._extras, 30 * 10**9),
        }
        self.watch = NodeWatch(FAST, parts, self.board)
        config = ApiConfig(folder / "c.sock", folder / "admin/a.sock", 2)
        self.api = Api(config, Publisher(reading()), DrillBoard(), node=self.board)
        self.channel = grpc.insecure_channel(f"unix:{config.socket}")
        self.stub = node_pb2_grpc.NodeStub(self.channel)

    def _extras(self) -> Extras:
        self.asked += 1
        return Extras({"eth0": LinkExtra(("fq",), ("RS",), 3)}, (PeerPath("p", 10, 10, 5, 6, 1),))

    def health(self) -> node_pb2.NodeHealth:
        return self.stub.GetHealth(node_pb2.GetHealthRequest(), timeout=10).health

    def watching(self) -> Any:
        return self.stub.WatchHealth(node_pb2.WatchHealthRequest(), timeout=60)

    def close(self) -> None:
        self.watch.stop()
        self.channel.close()
        self.api.stop()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.close()


def refusal(call: Callable[[], Any]) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    code: grpc.StatusCode = error.code()
    return code


def test_health_waits_for_the_first_look_and_no_longer(node: Node) -> None:
    assert refusal(node.health) is grpc.StatusCode.UNAVAILABLE
    node.watch.start()
    health = node.health()
    assert (health.state, health.sequence >= 1, health.boot_id) == (node_pb2.HEALTH_STATE_HEALTHY, True, "boot")
    assert 0 <= health.age_ns < 20 * 10**9
    assert health.host.clocksource == "tsc"
    assert not health.host.HasField("memory_total_bytes")
    assert [disk.free_bytes for disk in health.disks] == [5]


def test_a_watcher_hears_of_a_finding_when_it_comes_and_when_it_goes(node: Node) -> None:
    node.watch.look(is_asked=False)
    stream = node.watching()
    assert next(stream).health.findings == []
    for clocksource, codes in (("hpet", [node_pb2.FINDING_CODE_CLOCKSOURCE_SLOW]), ("tsc", [])):
        node.host = HostLook(clocksource=clocksource)
        began = time.monotonic()
        node.watch.look(is_asked=False)
        while [one.code for one in next(stream).health.findings] != codes:
            assert time.monotonic() - began < 20
    node.watch.stop()
    stream.cancel()


def test_a_watcher_hears_every_few_seconds_that_nothing_changed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clockgated.service.node._LONGEST_QUIET_S", 1.0)
    node.watch.look(is_asked=False)
    stream = node.watching()
    next(stream)
    began = time.monotonic()
    next(stream)
    assert 0.9 < time.monotonic() - began < 20
    stream.cancel()


def test_watchers_share_the_ceiling_of_streams_and_end_with_the_daemon(node: Node) -> None:
    node.watch.look(is_asked=False)
    streams = [node.watching() for _ in range(2)]
    for stream in streams:
        next(stream)
    over = node.watching()
    assert refusal(lambda: next(over)) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert node.health().sequence == 1
    node.api.stop()
    for stream in streams:
        assert refusal(lambda stream=stream: [*stream]) is grpc.StatusCode.UNAVAILABLE  # type: ignore[misc]


def test_drivers_and_peers_are_asked_when_the_fabric_is_and_not_again_at_once(node: Node) -> None:
    node.watch.start()
    node.health()
    assert node.asked == 0
    for _ in range(3):
        fabric = node.stub.GetFabric(node_pb2.GetFabricRequest(), timeout=20).fabric
    assert node.asked == 1
    (link,) = fabric.links
    assert (link.name, link.driver, link.fec_corrected) == ("eth0", "mlx5", 3)
    assert [*link.qdiscs, *link.fec_modes] == ["fq", "RS"]
    assert not link.HasField("fec_uncorrectable")
    assert [(one.peer, one.median_us) for one in fabric.peers] == [("p", 5)]


def test_a_part_that_hangs_shows_in_the_health(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clockgated.node.watch._PATIENCE_S", 0.05)
    hangs = threading.Event()
    watch = NodeWatch(FAST, {"gpus": Part(lambda: hangs.wait(60) and None)}, node.board)
    health: NodeHealth = watch.look(is_asked=False)
    hangs.set()
    assert [(one.code.name, one.subject) for one in health.findings] == [("LOOK_OVERDUE", "gpus")]
