import json
import shlex

import pytest
from clockgated.supervise.base import ChildSpec
from clockgated.supervise.unit_text import (
    SHOWN_PROPERTIES,
    UnitState,
    drop_in,
    journal_argv,
    parse_header,
    parse_journal_line,
    parse_show,
    restarts_since,
)
from hypothesis import given
from hypothesis import strategies as st

SPEC = ChildSpec(
    "ptp4l@eth0",
    ("/usr/sbin/ptp4l", "-f", "/run/clockgate/ptp4l eth0.conf", "$HOME", "100%", 'say "hi"', "a\\b", ";"),
    environment=(("TZ", "UTC"), ("A", "50% $x")),
    drop_clock_right=True,
    unit="clockgate-ptp4l@eth0.service",
)
SHOWN = """\
Id=clockgate-chronyd.service
LoadState=loaded
ActiveState=active
SubState=running
MainPID=4711
NRestarts=2
Result=success
ExecMainStatus=0
ExecMainStartTimestampMonotonic=123456
NeedDaemonReload=yes

Id=clockgate-ptp4l@eth0.service
LoadState=not-found
ActiveState=inactive
SubState=dead
MainPID=0
NRestarts=
Result=success
"""


def test_every_word_reaches_the_program_as_it_is() -> None:
    text = drop_in(SPEC, SPEC.argv, 1, 5)
    (command,) = [
        line for line in text.splitlines() if line.startswith("ExecStart=/") or line.startswith('ExecStart="')
    ]
    words = shlex.split(command.removeprefix("ExecStart="))
    assert tuple(word.replace("$$", "$").replace("%%", "%") for word in words) == SPEC.argv
    assert '"$$HOME"' in command
    assert '"100%%"' in command


def test_an_environment_value_keeps_its_dollar_and_doubles_its_percent() -> None:
    assert 'Environment="A=50%% $x"' in drop_in(SPEC, SPEC.argv, 1, 5)


def test_a_line_end_in_a_word_cannot_add_a_setting() -> None:
    spec = ChildSpec("x", ("/bin/x", "a\nUser=nobody"), unit="x.service")
    assert not any(line.startswith("User=") for line in drop_in(spec, spec.argv, 1, 5).splitlines())


def test_the_unit_is_restarted_without_limit_and_without_the_clock_right() -> None:
    lines = drop_in(SPEC, SPEC.argv, 60, 5).splitlines()
    assert {"Restart=always", "RestartSec=60", "StartLimitIntervalSec=0", "CapabilityBoundingSet=~CAP_SYS_TIME"} <= {
        *lines
    }
    assert lines.index("ExecStart=") < [line.startswith('ExecStart="') for line in lines].index(True)
    plain = ChildSpec("x", ("/bin/x",), unit="x.service")
    assert "CapabilityBoundingSet" not in drop_in(plain, plain.argv, 1, 5)


def test_a_drop_in_names_its_child_and_spec() -> None:
    assert parse_header(drop_in(SPEC, SPEC.argv, 1, 5)) == ("ptp4l@eth0", SPEC.digest)
    assert parse_header("# somebody else's\n") is None


def test_show_is_read_unit_by_unit() -> None:
    states = parse_show(SHOWN)
    assert states["clockgate-chronyd.service"] == UnitState(
        "clockgate-chronyd.service",
        "loaded",
        "active",
        "running",
        4711,
        2,
        "success",
        0,
        123_456_000,
        needs_reload=True,
    )
    absent = states["clockgate-ptp4l@eth0.service"]
    assert (absent.load_state, absent.main_pid, absent.restarts, absent.is_down) == ("not-found", None, None, True)


@given(st.text())
def test_any_answer_of_systemctl_is_read_without_raising(text: str) -> None:
    parse_show(text)
    parse_show(SHOWN.replace("4711", text))
    parse_header(text)


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_line_of_the_journal_is_read_without_raising(text: str) -> None:
    parse_journal_line(text)
    parse_journal_line(json.dumps({"_SYSTEMD_UNIT": "x", "MESSAGE": text}))


@pytest.mark.parametrize(
    ("message", "wanted"),
    [("phc2sys[1.0]: x", "phc2sys[1.0]: x"), ([104, 105, 255], "hi�"), (None, None), ([300], None), (5, None)],
)
def test_a_message_of_the_journal_is_text_or_bytes(message: object, wanted: str | None) -> None:
    parsed = parse_journal_line(json.dumps({"_SYSTEMD_UNIT": "u.service", "MESSAGE": message}))
    assert parsed == (None if wanted is None else ("u.service", wanted))


def test_only_the_named_units_are_followed_from_now_on() -> None:
    argv = journal_argv("/usr/bin/journalctl", ["a.service", "b.service"])
    assert argv[-2:] == ("_SYSTEMD_UNIT=a.service", "_SYSTEMD_UNIT=b.service")
    assert "--lines=0" in argv


@pytest.mark.parametrize(("seen", "now", "wanted"), [(2, 5, 3), (5, 1, 1), (5, 0, 0), (None, 9, 0), (3, None, 0)])
def test_restarts_are_counted_over_a_reset_of_the_counter(seen: int | None, now: int | None, wanted: int) -> None:
    assert restarts_since(seen, now) == wanted


def test_every_property_that_is_read_is_asked_for() -> None:
    assert {line.partition("=")[0] for line in SHOWN.splitlines() if line} <= set(SHOWN_PROPERTIES)
