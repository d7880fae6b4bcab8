import pytest
from clockgated.node import history as history_room
from clockgated.node.facts import FabricLook, NetLink, NodeLook
from clockgated.node.history import History, remember

S = 1_000_000_000
STEADY = NetLink("eth0", is_up=True, carrier_losses=1, counters={"rx_errors": 9, "rx_dropped": 7})


def test_interfaces_of_containers_that_come_and_go_leave_no_endless_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_room, "_MOST_COUNTERS", 50)
    history = History()
    for number in range(60):
        fleeting = NetLink(f"veth{number}", is_up=True, carrier_losses=1, counters={"rx_errors": 0, "rx_dropped": 0})
        look = NodeLook(fabric=FabricLook((STEADY, fleeting)))
        history = remember(history, look, number * S, hold_ns=10 * S, drops_per_s=100)
    assert len(history.counters) == 50
    assert history.counters["eth0.carrier_losses"] == 1
    assert "veth59.errors" in history.counters
