import logging
import os
from pathlib import Path

import pytest
from clockgated import host
from clockgated.clock.bound import BoundPolicy
from clockgated.clock.model import Evidence, ReasonCode, Silence
from clockgated.sources.chronyc import ChronycSource
from support.evidence import SECOND
from support.fake_program import fake_program, is_gone

RECORDED = Path(__file__).parents[2] / "support" / "recorded" / "chrony_4.3"
REF_WALL_NS = 1796071948_405353379


class Clock:
    """The wall clock right after the reference time of the recorded client; every look takes a millisecond."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> host.Stamp:
        self.looks += 1
        passed_ns = self.looks * 1_000_000
        return host.Stamp(50 * SECOND + passed_ns, 40 * SECOND + passed_ns, REF_WALL_NS + passed_ns)


def source(folder: Path, script: str, timeout_s: float = 10) -> ChronycSource:
    program = fake_program(folder, script, "chronyc")
    return ChronycSource(
        folder / "chronyd.sock", BoundPolicy(), "boot-1", timeout_s=timeout_s, program=str(program), stamp=Clock()
    )


def silence(folder: Path, script: str, timeout_s: float = 10) -> Silence:
    result = source(folder, script, timeout_s).read()
    assert isinstance(result, Silence)
    assert is_gone(folder)
    return result


def answer(name: str = "client_of_island.csv") -> str:
    return f"cat {RECORDED / name}"


def test_an_answer_becomes_evidence_dated_before_the_question(tmp_path: Path) -> None:
    evidence = source(tmp_path, answer()).read()
    assert isinstance(evidence, Evidence)
    assert evidence.as_of_boot_ns == 50 * SECOND + 1_000_000
    assert evidence.faults == ()
    assert evidence.reference.identity == "ntp:127.0.0.1@boot-1"
    # The reference time is aged by the second look, 2 ms after it: 72946 + 3166 + 5994 + 1000 and 48 ppm of 2 ms.
    assert evidence.bound_ns == 72_946 + 3_166 + 5_994 + 1_000 + 96


def test_chronyc_is_asked_for_all_reports_at_once_over_the_one_socket(tmp_path: Path) -> None:
    source(tmp_path, f'echo "$@" >{tmp_path / "asked"}').read()
    asked = (tmp_path / "asked").read_text().split()
    reports = ["tracking", "sources", "sourcestats", "ntpdata"]
    assert asked == ["-h", str(tmp_path / "chronyd.sock"), "-c", "-n", "-m", *reports]


def test_chronyd_is_told_to_forget_and_to_measure_anew_in_one_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert source(tmp_path, f'for one in "$@"; do echo "$one"; done >{tmp_path / "asked"}').forget()
    assert (tmp_path / "asked").read_text().splitlines() == [
        "-h", str(tmp_path / "chronyd.sock"), "-m", "reset sources", "burst 8/16"
    ]  # fmt: skip
    assert "drop its samples" in caplog.text


@pytest.mark.parametrize(
    ("script", "part"),
    [("echo 501 Not authorised; exit 1", "501 Not authorised"), ("exec sleep 60", "said ''")],
)
def test_a_chronyd_that_does_not_forget_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, script: str, part: str
) -> None:
    assert not source(tmp_path, script, timeout_s=0.5 if "sleep" in script else 30).forget()
    assert part in caplog.text
    assert "keeps its samples" in caplog.text
    assert not ChronycSource(tmp_path / "s", BoundPolicy(), "boot-1", program=str(tmp_path / "no-chronyc")).forget()
    assert "no-chronyc cannot be run" in caplog.text


def test_a_local_reference_is_evidence_without_a_bound(tmp_path: Path) -> None:
    evidence = source(tmp_path, answer("local_reference.csv")).read()
    assert isinstance(evidence, Evidence)
    assert evidence.bound_ns is None


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    result = ChronycSource(tmp_path / "s", BoundPolicy(), "boot-1", program=str(tmp_path / "no-chronyc")).read()
    assert isinstance(result, Silence)
    assert result.reason.code is ReasonCode.SOURCE_UNREACHABLE
    assert "no-chronyc" in result.reason.detail
    assert "install chrony" in result.reason.detail


def test_a_program_that_may_not_be_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("no program")
    result = ChronycSource(tmp_path / "s", BoundPolicy(), "boot-1", program=str(tmp_path / "plain")).read()
    assert isinstance(result, Silence)
    assert result.reason.code is ReasonCode.SOURCE_UNREACHABLE
    assert "cannot be run" in result.reason.detail


@pytest.mark.parametrize(
    ("script", "code", "part"),
    [
        ("exec sleep 60", ReasonCode.SOURCE_UNREACHABLE, "within 0.5 s"),
        ("echo 506 Cannot talk to daemon; exit 1", ReasonCode.SOURCE_UNREACHABLE, "506 Cannot talk to daemon"),
        ("echo Could not open connection >&2; exit 1", ReasonCode.SOURCE_UNREACHABLE, "Could not open connection"),
        ("exit 0", ReasonCode.SOURCE_GARBLED, "printed nothing"),
        ("kill -9 $$", ReasonCode.SOURCE_UNREACHABLE, "-9"),
        (f"{answer()}; exit 1", ReasonCode.SOURCE_GARBLED, "ended with 1"),
        (f"head -c 60 {RECORDED / 'client_of_island.csv'}", ReasonCode.SOURCE_GARBLED, "cut off"),
        ("while :; do echo 7F7F0101; done", ReasonCode.SOURCE_GARBLED, "more than"),
        ("head -c 900000 /dev/zero | tr '\\0' 7; echo", ReasonCode.SOURCE_GARBLED, "900000 bytes"),
    ],
)
def test_every_way_to_fail_is_a_silence_that_says_why(tmp_path: Path, script: str, code: ReasonCode, part: str) -> None:
    result = silence(tmp_path, script, timeout_s=0.5 if "sleep" in script else 30)
    assert result.reason.code is code
    assert part in result.reason.detail
    assert result.as_of_boot_ns == 50 * SECOND + 1_000_000


def test_refused_ntpdata_is_lived_with(tmp_path: Path) -> None:
    script = f"grep -v Server {RECORDED / 'client_of_island.csv'}; echo 501 Not authorised; exit 1"
    evidence = source(tmp_path, script).read()
    assert isinstance(evidence, Evidence)
    assert evidence.faults == ()


def test_a_restarted_chronyd_is_another_steering_process(tmp_path: Path) -> None:
    asked = source(tmp_path, answer())

    def steering_id() -> str | None:
        evidence = asked.read()
        assert isinstance(evidence, Evidence)
        return evidence.steering_id

    assert steering_id() is None
    socket = tmp_path / "chronyd.sock"
    socket.touch()
    first = steering_id()
    assert first is not None
    assert steering_id() == first
    socket.unlink()
    socket.touch()
    os.utime(socket, ns=(0, 12345))
    assert steering_id() not in (None, first)
