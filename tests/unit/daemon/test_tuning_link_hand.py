"""Knobs of interfaces where the kernel answers otherwise than on this machine."""

import errno
from typing import Any, Self

import pytest
from clockgated.tuning import link_hand
from clockgated.tuning.ethtool import Unanswered
from clockgated.tuning.link_hand import LinkHand
from clockgated.tuning.model import Area, Knob, LinkId
from clockgated.tuning.outcome import Trouble, TroubleCode

LINK = LinkId("eth0", 2, "02:00:00:00:00:01", "mlx5_core")
RINGS = Knob(1, Area.RINGS, "rx", LINK)


class FakeEthtool:
    """A driver that answers every request alike and notes what it is told to set."""

    answer: Any = None
    told: list[Any]

    def __init__(self) -> None:
        type(self).told = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get(self, command: Any, device: str) -> Any:
        return self.answer

    def set(self, command: Any, device: str, values: Any) -> Any:
        type(self).told.append((command.name, device, values))
        return self.answer if isinstance(self.answer, Unanswered) else None


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> type[FakeEthtool]:
    monkeypatch.setattr(link_hand, "Ethtool", FakeEthtool)
    monkeypatch.setattr(link_hand, "present_links", lambda sys: (LinkId("ens1", 9, LINK.permanent_mac, LINK.driver),))
    return FakeEthtool


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (errno.ENOENT, TroubleCode.UNSUPPORTED),  # no ethtool family: svinota/pyroute2 691
        (errno.EOPNOTSUPP, TroubleCode.UNSUPPORTED),
        (errno.EPERM, TroubleCode.READ_ONLY),
        (errno.EINVAL, TroubleCode.FAILED),
        (errno.EBUSY, TroubleCode.FAILED),
        (errno.ENODEV, TroubleCode.GONE),
    ],
)
def test_a_refusal_of_the_driver_is_told_apart(driver: type[FakeEthtool], code: int, expected: TroubleCode) -> None:
    driver.answer = Unanswered(code, "the driver's own words")
    for found in (LinkHand().read(RINGS), LinkHand().write(RINGS, "2048")):
        assert isinstance(found, Trouble)
        assert found.code is expected
        assert "the driver's own words" in found.detail


def test_a_renamed_link_is_asked_by_its_present_name(driver: type[FakeEthtool]) -> None:
    driver.answer = {"rx": 1024, "rx_max": 8192}

    assert LinkHand().read(RINGS) == "1024"
    assert LinkHand().write(RINGS, "2048") is None
    assert driver.told == [("RINGS_SET", "ens1", [("rx", 2048)])]


def test_a_switch_is_on_or_off(driver: type[FakeEthtool]) -> None:
    knob = Knob(1, Area.EEE, "enabled", LINK)
    driver.answer = {"enabled": 1}

    assert LinkHand().read(knob) == "on"
    assert LinkHand().write(knob, "off") is None
    assert driver.told == [("EEE_SET", "ens1", [("enabled", 0)])]


def test_what_the_driver_does_not_tell_is_unsupported(driver: type[FakeEthtool]) -> None:
    driver.answer = {"tx": 1024}
    found = LinkHand().read(RINGS)

    assert isinstance(found, Trouble)
    assert found.code is TroubleCode.UNSUPPORTED
