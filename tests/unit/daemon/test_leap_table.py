from pathlib import Path

import pytest
from clockgated.steering.leap_table import LeapTable, tai_offset_s
from hypothesis import given
from hypothesis import strategies as st

NTP_TO_UNIX_S = 2_208_988_800
LIST = """#@\t3960057600
#
3644697600\t36\t# 1 Jul 2015
3692217600\t37\t# 1 Jan 2017
"""


@pytest.mark.parametrize(
    ("ntp_s", "offset_s"),
    [(3_644_697_599, None), (3_644_697_600, 36), (3_692_217_599, 36), (3_692_217_600, 37), (3_960_057_599, 37)],
)
def test_offset_is_that_of_the_newest_entry_in_force(ntp_s: int, offset_s: int | None) -> None:
    assert tai_offset_s(LIST, ntp_s - NTP_TO_UNIX_S) == offset_s


def test_an_expired_table_knows_nothing() -> None:
    assert tai_offset_s(LIST, 3_960_057_600 - NTP_TO_UNIX_S) is None


def test_table_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "leap-seconds.list"
    path.write_text(LIST)
    assert LeapTable(str(path), lambda: 1_600_000_000).utc_offset_s() == 37
    assert LeapTable(None).utc_offset_s() is None
    assert LeapTable(str(tmp_path / "none")).utc_offset_s() is None


@given(st.text(max_size=200), st.floats(-1e12, 1e12))
def test_any_text_gives_an_offset_or_none(text: str, unix_s: float) -> None:
    found = tai_offset_s(text, unix_s)
    assert found is None or found >= 0
