import logging

import pytest
from clockgated.clock.model import Reason, ReasonCode
from clockgated.narrator import Narrator
from support.readings import reading

FORBIDDEN = Reason(ReasonCode.STEP_FORBIDDEN_BY_LEASE, "lease 1 forbids it")


def levels(caplog: pytest.LogCaptureFixture, *readings: tuple[Reason, ...]) -> list[int]:
    """Levels of what is logged as readings with these reasons follow a good one."""
    now = [reading()]
    narrator = Narrator(lambda: now[0])
    with caplog.at_level(logging.INFO):
        for reasons in readings:
            now[0] = reading(reasons=reasons)
            narrator.tell()
    return [record.levelno for record in caplog.records]


def test_a_step_that_a_lease_forbids_is_an_alert_once(caplog: pytest.LogCaptureFixture) -> None:
    assert levels(caplog, (FORBIDDEN,), (FORBIDDEN,), ()) == [logging.WARNING, logging.INFO]
    assert "STEP_FORBIDDEN_BY_LEASE: lease 1 forbids it" in caplog.text


def test_another_reason_beside_a_standing_alert_is_no_alert(caplog: pytest.LogCaptureFixture) -> None:
    island = Reason(ReasonCode.ISLAND, "alone")
    assert levels(caplog, (FORBIDDEN,), (FORBIDDEN, island)) == [logging.WARNING, logging.INFO]


def test_an_ordinary_reason_is_news(caplog: pytest.LogCaptureFixture) -> None:
    assert levels(caplog, (Reason(ReasonCode.LEAP_PENDING, "tonight"),)) == [logging.INFO]
