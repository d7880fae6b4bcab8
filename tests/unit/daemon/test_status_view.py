import json
from typing import Any

import pytest
from clockgate.v1 import clock_pb2
from clockgated.clock.model import ClockState, Reason, ReasonCode, Reference, Traceability
from clockgated.ctl import status
from clockgated.service.convert import reading_message
from hypothesis import given
from hypothesis import strategies as st
from support.readings import GOOD, reading

SECOND = 1_000_000_000


def view(age_s: float = 0, **changes: Any) -> str:
    message = reading_message(reading(**changes), GOOD.as_of_boot_ns)
    return status.render(message, GOOD.as_of_boot_ns + int(age_s * SECOND), in_colour=False)


def row(text: str, name: str) -> str:
    return next(line[18:] for line in text.splitlines() if line.startswith(f"  {name}"))


def test_view_names_everything_a_person_asks_for() -> None:
    text = view(0.4)
    assert text.splitlines()[0] == "SYNCHRONIZED"
    assert row(text, "offset") == "1.2 µs behind (estimate)"
    assert row(text, "95 % estimate") == "2 µs (for people; the bound is the promise)"
    assert row(text, "source") == "chrony"
    assert row(text, "reference") == "ntp.example.net, ntp:192.0.2.1, refid C0000201"
    assert row(text, "traceable") == "yes"
    assert row(text, "stratum") == "2"
    assert row(text, "epoch") == "3"
    assert row(text, "age") == "0.4 s, valid for 4.6 s more"
    assert row(text, "assumes") == "the oscillator drifts by at most 50 ppm"


def test_bounds_are_grown_to_now() -> None:
    assert row(view(0), "relative bound") == "±40 µs, growing 50 µs a second"
    assert row(view(2), "relative bound") == "±140 µs, growing 50 µs a second"
    assert row(view(2), "UTC bound") == "±190 µs, growing 50 µs a second"


def test_what_is_unknown_is_said_and_never_shown_as_zero() -> None:
    text = view(relative_bound_ns=None, utc_bound_ns=None, offset_ns=None, estimate_95_ns=None, reference=Reference())
    assert row(text, "relative bound") == "unknown"
    assert row(text, "UTC bound") == "unknown"
    assert row(text, "offset") == "unknown"
    assert row(text, "reference") == "none"
    assert row(text, "stratum") == "none"
    assert row(text, "traceable") == "unknown"
    assert "±0" not in text
    assert "95 % estimate" not in text


def test_bound_of_a_state_that_has_none_is_for_information() -> None:
    assert "not usable in this state" in row(view(state=ClockState.FREE_RUNNING), "relative bound")


def test_expired_reading_says_so_first() -> None:
    text = view(7)
    assert text.startswith("SYNCHRONIZED (expired: the daemon stopped measuring)")
    assert row(text, "age") == "7.0 s, expired 2.0 s ago"


def test_every_reason_is_on_a_line_of_its_own() -> None:
    reasons = (Reason(ReasonCode.ISLAND, "an island"), Reason(ReasonCode.SETTLING, "1 of 3"))
    lines = view(reasons=reasons).splitlines()
    assert "  reason          ISLAND: an island" in lines
    assert "                  SETTLING: 1 of 3" in lines


def test_control_characters_of_other_machines_do_not_reach_the_terminal() -> None:
    text = view(reference=Reference("ntp:x", "a\x1b[2Jb\nc", 2, "", Traceability.NO))
    assert "\x1b" not in text
    assert row(text, "reference") == "a\\x1b[2Jb\\x0ac, ntp:x"


def test_colour_is_only_added_when_asked_for() -> None:
    message = reading_message(GOOD, GOOD.as_of_boot_ns)
    coloured = status.render(message, GOOD.as_of_boot_ns, in_colour=True)
    assert coloured.startswith("\x1b[32mSYNCHRONIZED\x1b[0m\n")
    late = status.render(message, GOOD.void_after_boot_ns + 1, in_colour=True)
    assert late.startswith("\x1b[31mSYNCHRONIZED (expired")


def test_value_of_a_newer_daemon_is_shown_by_its_number() -> None:
    message = clock_pb2.Reading()
    message.ParseFromString(clock_pb2.Reading(state=3).SerializeToString().replace(b"\x08\x03", b"\x08\x63"))  # type: ignore[arg-type]
    assert status.render(message, 0, in_colour=False).startswith("99")


@pytest.mark.parametrize("state", ClockState)
def test_usable_states_are_synchronized_and_holdover(state: ClockState) -> None:
    message = reading_message(reading(state=state), GOOD.as_of_boot_ns)
    wanted = state in (ClockState.SYNCHRONIZED, ClockState.HOLDOVER)
    assert status.is_usable(message, GOOD.as_of_boot_ns) is wanted
    assert status.is_usable(message, GOOD.void_after_boot_ns + 1) is False


def test_usable_needs_a_bound() -> None:
    message = reading_message(reading(relative_bound_ns=None), GOOD.as_of_boot_ns)
    assert status.is_usable(message, GOOD.as_of_boot_ns) is False


def test_json_has_stable_keys_and_null_for_what_is_absent() -> None:
    empty = reading(
        relative_bound_ns=None, utc_bound_ns=None, offset_ns=None, estimate_95_ns=None, reference=Reference()
    )
    shown = status.as_json(reading_message(empty, GOOD.as_of_boot_ns), GOOD.as_of_boot_ns + SECOND)
    assert json.loads(json.dumps(shown)) == {
        "state": "SYNCHRONIZED",
        "usable": False,
        "expired": False,
        "relative_bound_ns": None,
        "relative_bound_now_ns": None,
        "utc_bound_ns": None,
        "utc_bound_now_ns": None,
        "growth_ppb": 50_000,
        "offset_ns": None,
        "estimate_95_ns": None,
        "epoch": 3,
        "source_kind": "chrony",
        "reference": {
            "identity": None, "source_name": None, "stratum": None, "ref_id": None, "traceable": "unknown"
        },
        "as_of_boot_ns": 100_000_000_000,
        "void_after_boot_ns": 105_000_000_000,
        "age_ns": SECOND,
        "boot_id": GOOD.boot_id,
        "sequence": 7,
        "reasons": [],
        "assumptions": ["the oscillator drifts by at most 50 ppm"],
        "time_daemon": {},
    }  # fmt: skip


def test_json_of_a_good_reading_has_the_bound_then_and_now() -> None:
    shown = status.as_json(reading_message(GOOD, GOOD.as_of_boot_ns), GOOD.as_of_boot_ns + SECOND)
    assert (shown["relative_bound_ns"], shown["relative_bound_now_ns"]) == (40_000, 90_000)
    assert (shown["utc_bound_ns"], shown["utc_bound_now_ns"]) == (90_000, 140_000)
    assert (shown["offset_ns"], shown["estimate_95_ns"]) == (-1_200, 2_000)
    assert shown["usable"] is True
    assert shown["reference"]["traceable"] == "yes"


@pytest.mark.parametrize(
    ("size_ns", "text"),
    [
        (0, "0 ns"),
        (1, "1 ns"),
        (999, "999 ns"),
        (1_000, "1 µs"),
        (40_001, "40.01 µs"),
        (1_234_567, "1.235 ms"),
        (999_999, "1000 µs"),
        (50_000_000, "50 ms"),
        (1_000_000_000, "1 s"),
        (12_345_678_901_234, "12346 s"),
    ],
)
def test_widths_are_shown_in_a_fitting_unit(size_ns: int, text: str) -> None:
    assert status.format_ns(size_ns) == text


@given(st.integers(0, 1 << 62))
def test_shown_width_is_never_below_the_true_one(size_ns: int) -> None:
    number, unit = status.format_ns(size_ns).split()
    factor = {"ns": 1, "µs": 1_000, "ms": 1_000_000, "s": SECOND}[unit]
    whole, _, fraction = number.partition(".")
    shown_ns = int(whole) * factor + int(fraction or 0) * factor // 10 ** len(fraction)
    assert size_ns <= shown_ns <= size_ns * 1.001 + 1 + factor * (size_ns >= 1000 * SECOND)


def test_what_the_time_daemon_says_stands_below_in_columns() -> None:
    details = [
        clock_pb2.SourceDetail(name="skew", value="0.1 ppm"),
        clock_pb2.SourceDetail(name="root delay", value="2 ms\x1b[2J"),
    ]
    message = reading_message(GOOD, GOOD.as_of_boot_ns)
    lines = status.render(message, GOOD.as_of_boot_ns, details, in_colour=False).splitlines()
    assert lines[-3:] == ["the time daemon says", "  skew        0.1 ppm", "  root delay  2 ms\\x1b[2J"]
    assert status.as_json(message, GOOD.as_of_boot_ns, details)["time_daemon"]["skew"] == "0.1 ppm"
