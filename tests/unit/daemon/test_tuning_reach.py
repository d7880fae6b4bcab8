"""Hosts of the configuration, and connections as proof that a port is reached."""

import socket

from clockgated.tuning.confirm import Target
from clockgated.tuning.reach import configured, reached, resolved


def test_hosts_are_addresses_or_addresses_with_a_port() -> None:
    hosts = ["192.0.2.1", "192.0.2.1:9777", "node-a:22", "2001:db8::1", "[2001:db8::1]:22", "[2001:db8::1]"]

    assert configured(hosts) == (
        Target("192.0.2.1", "192.0.2.1"),
        Target("192.0.2.1:9777", "192.0.2.1", 9777),
        Target("node-a:22", "node-a", 22),
        Target("2001:db8::1", "2001:db8::1"),
        Target("[2001:db8::1]:22", "2001:db8::1", 22),
        Target("[2001:db8::1]", "2001:db8::1"),
    )


def test_a_port_is_reached_while_somebody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host = f"127.0.0.1:{server.getsockname()[1]}"
        assert reached(configured([host])) == {host}
    assert reached(configured([host])) == set()


def test_names_are_looked_up_before_the_change() -> None:
    found = resolved(configured(["localhost:22", "192.0.2.1"]))

    assert [(one.name, one.address in ("127.0.0.1", "::1", "192.0.2.1")) for one in found] == [
        ("localhost:22", True),
        ("192.0.2.1", True),
    ]


def test_nothing_is_reached_by_nonsense() -> None:
    nonsense = configured(["", "x" * 300, "a..b:1", "\udcff"])

    assert reached([one for one in nonsense if one.port is None]) == set()
    assert all(one.address for one in resolved(nonsense))


def test_a_port_that_there_is_not_proves_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        hosts = configured([f"127.0.0.1:{port + 65536}", "127.0.0.1:99999999999999999999"])
        assert reached(resolved(hosts)) == set()
        assert reached(hosts) == set()
