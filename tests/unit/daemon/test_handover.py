import json
from pathlib import Path

import pytest
from clockgated.manage.handover import Handover, encode, parse, run_command
from clockgated.manage.planned import Folders
from clockgated.manage.takeover import Command, UnitRecord, merged
from hypothesis import given
from hypothesis import strategies as st

CHRONY = UnitRecord("chrony.service", was_enabled=True, was_active=True, was_masked=False)
TIMESYNCD = UnitRecord("systemd-timesyncd.service", was_enabled=True, was_active=False, was_masked=False)


class Systemctl:
    """Remembers commands, and what was on disk when the first came; fails for those that have `broken` in them."""

    def __init__(self, record: Path) -> None:
        self.commands: list[str] = []
        self.record = record
        self.recorded_first = b""
        self.broken = "no such word"

    def __call__(self, command: Command) -> str | None:
        if not self.commands and self.record.exists():
            self.recorded_first = self.record.read_bytes()
        self.commands.append(" ".join(command[1:]))
        return f"{command[1]}: refused" if self.broken in command else None


@pytest.fixture
def systemctl(tmp_path: Path) -> Systemctl:
    return Systemctl(tmp_path / "taken-over.json")


@pytest.fixture
def handover(tmp_path: Path, systemctl: Systemctl) -> Handover:
    return Handover(Folders(f"{tmp_path}/run", str(tmp_path)), systemctl)


def test_the_record_is_on_disk_before_anything_is_changed(handover: Handover, systemctl: Systemctl) -> None:
    assert handover.take((CHRONY,)) == ()
    assert parse(systemctl.recorded_first) == (CHRONY,)
    assert systemctl.commands == ["disable --now chrony.service", "mask chrony.service"]


def test_nothing_is_changed_when_there_can_be_no_record(tmp_path: Path, systemctl: Systemctl) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        Handover(Folders(f"{tmp_path}/run", f"{tmp_path}/file"), systemctl).take((CHRONY,))
    assert systemctl.commands == []


def test_units_are_given_back_as_they_were_and_then_forgotten(handover: Handover, systemctl: Systemctl) -> None:
    handover.take((CHRONY, TIMESYNCD))
    systemctl.commands.clear()
    assert handover.give_back() == ()
    assert systemctl.commands == [
        "unmask chrony.service",
        "enable chrony.service",
        "start chrony.service",
        "unmask systemd-timesyncd.service",
        "enable systemd-timesyncd.service",
    ]
    assert handover.records() == ()
    assert handover.give_back() == ()


def test_a_second_take_over_keeps_the_first_record_of_a_unit(handover: Handover) -> None:
    handover.take((CHRONY,))
    as_we_left_it = UnitRecord("chrony.service", was_enabled=False, was_active=True, was_masked=False)
    handover.take((as_we_left_it, TIMESYNCD))
    assert set(handover.records()) == {CHRONY, TIMESYNCD}
    assert set(merged((CHRONY,), (as_we_left_it,))) == {CHRONY}


def test_what_fails_is_told_and_the_record_stays(handover: Handover, systemctl: Systemctl) -> None:
    systemctl.broken = "mask"
    assert handover.take((CHRONY,)) == ("mask: refused",)
    systemctl.broken = "start"
    assert handover.give_back() == ("start: refused",)
    assert handover.records() == (CHRONY,)


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b'{"format": 2, "units": []}', b'{"format": 1}', b'{"format": 1, "units": [{"unit": "x"}]}', b"\xff"],
)
def test_a_record_that_cannot_be_read_stops_everything_with_its_path(
    handover: Handover, systemctl: Systemctl, data: bytes
) -> None:
    systemctl.record.write_bytes(data)
    for act in (handover.records, handover.give_back, lambda: handover.take((CHRONY,))):
        with pytest.raises(OSError, match=r"taken-over\.json: .*; enable the units again that it is about"):
            act()
    assert systemctl.commands == []


@given(st.binary(max_size=100))
def test_any_bytes_are_records_or_a_complaint(data: bytes) -> None:
    assert isinstance(parse(data), tuple | str)


@given(st.builds(UnitRecord, st.text(), st.booleans(), st.booleans(), st.booleans()))
def test_records_survive_the_disk(record: UnitRecord) -> None:
    assert parse(encode((record,))) == (record,)
    json.loads(encode(()))


def test_a_real_command_is_told_by_its_complaint() -> None:
    assert run_command(("true",)) is None
    assert run_command(("sh", "-c", "echo no >&2; exit 3")) == "sh -c echo no >&2; exit 3: no"
    complaint = run_command(("/no/such/program",))
    assert complaint is not None
    assert complaint.startswith("/no/such/program: ")
