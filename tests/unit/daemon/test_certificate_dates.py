"""A certificate that this machine's clock calls out of date is told of, and served all the same."""

import logging
from pathlib import Path

import pytest
from clockgate.pem import read_pem, why_out_of_date
from clockgated.service.tls import Certificates
from support.certificates import authority


def test_dates_alone_make_a_certificate_out_of_date(tmp_path: Path) -> None:
    ca = authority(tmp_path)
    assert why_out_of_date(read_pem(ca.issue("good"))) is None
    assert why_out_of_date(read_pem(ca.issue_expired("old"))) == "certificate has expired"


def test_one_that_has_expired_is_told_at_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = authority(tmp_path).issue_expired("old")
    with caplog.at_level(logging.WARNING):
        Certificates(files).close()
    assert caplog.messages == [
        f"{files.certificate}: certificate has expired, by this node's clock; clients will refuse it: renew it, or see "
        "to the clock"
    ]
