"""What the configuration may say of the endpoint and of the looks at the node."""

import pytest
from clockgated.config import parse
from clockgated.config_values import TcpAddress
from clockgated.errors import ConfigError


def metrics(lines: str) -> TcpAddress | None:
    return parse(f"[metrics]\n{lines}\n".encode(), "f.toml").metrics.address


@pytest.mark.parametrize("address", ["0.0.0.0:9775", "192.0.2.7", "[::]:9775", "[2001:db8::1]"])
def test_an_address_that_others_reach_has_to_be_asked_for_twice(address: str) -> None:
    with pytest.raises(ConfigError, match="open_to_network = true"):
        metrics(f'address = "{address}"')
    assert metrics(f'address = "{address}"\nopen_to_network = true') is not None


def test_loopback_addresses_are_free_to_choose_and_have_a_port_of_their_own() -> None:
    assert metrics('address = "127.0.0.2"') == TcpAddress("127.0.0.2", 9775)
    assert metrics('address = "[::1]:19775"') == TcpAddress("::1", 19775)
    assert metrics("") == TcpAddress("127.0.0.1", 9775)


def test_an_empty_address_serves_nothing() -> None:
    assert metrics('address = ""') is None


@pytest.mark.parametrize("address", ["localhost:9775", "127.0.0.1:0", "127.0.0.1:70000", "unix:/x"])
def test_names_and_impossible_ports_are_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="else 9775"):
        metrics(f'address = "{address}"')


@pytest.mark.parametrize(
    "line", ["memory_low_percent = 101", "look_interval_s = 0", 'gpus = "yes"', "folders = [1]", "gpu_idle_percnt = 3"]
)
def test_wrong_settings_of_the_looks_name_the_section(line: str) -> None:
    with pytest.raises(ConfigError, match=r"\[node\]"):
        parse(f"[node]\n{line}\n".encode(), "f.toml")
