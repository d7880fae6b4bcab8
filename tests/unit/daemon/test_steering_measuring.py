from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from clockgated import config
from clockgated.clock.model import Evidence, Reason, ReasonCode, Silence, SourceKind
from clockgated.config import Config
from clockgated.errors import ConfigError
from clockgated.manage.facts import Facts, TimeDaemon
from clockgated.manage.plan import make_plan
from clockgated.manage.planned import Folders
from clockgated.manage.settings import ManageSettings
from clockgated.steering.joined import FedChronyd, Selection, SteeredBy
from clockgated.steering.measuring import Hooks, Measuring, may_set_clock, observed_kind, open_measuring
from clockgated.steering.prepare import Prepared
from clockgated.steering.signs import Listened, SignsOfLife
from support.evidence import REFERENCE, evidence, silence
from support.plan_hosts import PTP_AND_NTP, host, nic

CHRONYD = TimeDaemon("chronyd", 5, "chrony.service", may_steer=True)
NTPD = TimeDaemon("ntpd", 6, "ntp.service", may_steer=True)
HARMLESS = TimeDaemon("ntpd", 7, None, may_steer=False)


class Said:
    """A source that says what a test told it to."""

    kind = SourceKind.CHRONY

    def __init__(self, *answers: Evidence | Silence) -> None:
        self.answers = list(answers)

    def read(self) -> Evidence | Silence:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def settings(text: str) -> Config:
    return config.parse(text.encode(), "x.toml")


@pytest.mark.parametrize(
    ("source", "daemons", "exists", "kind"),
    [
        ("auto", (), True, SourceKind.CHRONY),
        ("auto", (), False, SourceKind.KERNEL),
        ("auto", (CHRONYD,), True, SourceKind.CHRONY),
        ("auto", (CHRONYD,), False, SourceKind.KERNEL),
        # The socket is then what an earlier chronyd left behind.
        ("auto", (NTPD,), True, SourceKind.KERNEL),
        ("auto", (HARMLESS,), True, SourceKind.CHRONY),
        ("chrony", (NTPD,), False, SourceKind.CHRONY),
        ("kernel", (), True, SourceKind.KERNEL),
        ("recorded", (), True, SourceKind.RECORDED),
    ],
)
def test_the_observed_source_is_the_one_that_can_be_trusted(
    source: str, daemons: tuple[TimeDaemon, ...], exists: bool, kind: SourceKind
) -> None:
    asked = settings(f'[clock]\nmode = "observe"\nsource = "{source}"\n[recorded]\nfile = "/x"\n')
    facts = replace(Facts(), time_daemons=daemons)
    assert observed_kind(asked, facts, chrony_socket_exists=exists) is kind


def opened(managed: ManageSettings, facts: Facts, folder: Path, *reasons: Reason) -> Measuring:
    wanted = replace(
        settings(""), clock=replace(settings("").clock, mode=managed.mode), ntp=managed.ntp, ptp=managed.ptp
    )
    plan = make_plan(wanted.managed, facts, Folders(f"{folder}/run", f"{folder}/state"))
    hooks = Hooks(SignsOfLife(), lambda: reasons, lambda name: None)
    return open_measuring(wanted, Prepared(plan, facts), "boot", hooks)


@pytest.mark.parametrize(
    ("mode", "kind", "feeds"),
    [
        ("ntp", SourceKind.CHRONY, set()),
        ("ptp", SourceKind.PTP, {"ptp4l@eth0", "phc2sys@eth0"}),
        ("ptp+ntp", SourceKind.CHRONY, {"ptp4l@eth0", "phc2sys@eth0"}),
    ],
)
def test_each_mode_measures_through_its_own_daemons(
    tmp_path: Path, mode: str, kind: SourceKind, feeds: set[str]
) -> None:
    managed = replace(PTP_AND_NTP, mode=type(PTP_AND_NTP.mode)(mode))
    measuring = opened(managed, host((4, 3), (3, 1, 1), nic("eth0")), tmp_path)
    assert measuring.source.kind is kind
    assert set(measuring.feeds) == feeds
    assert (measuring.forget is None) == (mode == "ptp"), "a chronyd of ours can be told to drop its samples"
    measurement = measuring.source.read()
    measuring.close()
    # Nothing runs yet; the socket that is asked is ours.
    reason = measurement.reason if isinstance(measurement, Silence) else measurement.faults[0]
    assert f"{tmp_path}/run/" in reason.detail or "no program" in reason.detail


def test_reasons_of_the_moment_are_on_every_measurement(tmp_path: Path) -> None:
    down = Reason(ReasonCode.TIME_DAEMON_DOWN, "down")
    facts = replace(host(), has_clock_right=False)
    measurement = opened(replace(PTP_AND_NTP, mode=type(PTP_AND_NTP.mode)("ntp")), facts, tmp_path, down).source.read()
    assert isinstance(measurement, Evidence)
    assert [reason.code for reason in measurement.remarks] == [ReasonCode.NOT_STEERED, ReasonCode.TIME_DAEMON_DOWN]


def test_a_recording_that_is_not_named_is_an_error_of_the_configuration() -> None:
    wanted = settings('[clock]\nmode = "observe"\nsource = "recorded"\n[recorded]\nfile = "/x"\n')
    unnamed = replace(wanted, recorded=replace(wanted.recorded, file=None))
    plan = make_plan(wanted.managed, Facts(), Folders())
    hooks = Hooks(SignsOfLife(), tuple, lambda name: None)
    with pytest.raises(ConfigError, match=r"\[recorded\] file is not set"):
        open_measuring(unnamed, Prepared(plan, Facts()), "boot", hooks)


def status_file(folder: Path, mask: int) -> Path:
    (folder / "42").mkdir()
    (folder / "42/status").write_text(f"Name:\tptp4l\nCapEff:\t{mask:016x}\nCapBnd:\t0\n")
    return folder


def test_whether_a_process_may_set_the_clock_is_its_capability(tmp_path: Path) -> None:
    assert may_set_clock(42, status_file(tmp_path, 1 << 25)) is True
    assert may_set_clock(None, tmp_path) is None
    assert may_set_clock(43, tmp_path) is None


def test_a_process_without_the_capability_may_not(tmp_path: Path) -> None:
    assert may_set_clock(42, status_file(tmp_path, (1 << 41) - 1 - (1 << 25))) is False


@pytest.mark.parametrize(
    ("answer", "is_sign"),
    [
        (evidence(), True),
        (silence(), False),
        (replace(silence(), reason=Reason(ReasonCode.SOURCE_GARBLED, "?")), True),
    ],
)
def test_every_answer_is_a_sign_of_life_and_silence_is_none(answer: Evidence | Silence, is_sign: bool) -> None:
    signs = SignsOfLife()
    assert Listened(Said(answer), "chronyd", signs).read() is answer
    assert ("chronyd" in signs.seen_mono_ns()) is is_sign
    assert ("chronyd" in signs.answered()) is is_sign


def test_a_line_is_a_sign_of_life_and_goes_to_the_feed_of_its_daemon() -> None:
    taken: list[str] = []

    class Feed:
        def feed(self, line: str) -> None:
            taken.append(line)

    signs = SignsOfLife()
    signs.route({"ptp4l@eth0": Feed()})  # type: ignore[dict-item]
    signs.on_line("ptp4l@eth0", "one")
    signs.on_line("chronyd", "two")
    assert taken == ["one"]
    assert set(signs.seen_mono_ns()) == {"ptp4l@eth0", "chronyd"}
    assert signs.answered() == frozenset()


@pytest.mark.parametrize("steering_id", ["clockgate-chronyd", None])
def test_a_chronyd_of_ours_is_the_same_servo_over_its_restarts(steering_id: str | None) -> None:
    answers = (evidence(steering_id="chronyd#1"), evidence(steering_id="chronyd#2"), silence())
    source = SteeredBy(Said(*answers), steering_id)
    first, second, third = source.read(), source.read(), source.read()
    assert isinstance(first, Evidence)
    assert isinstance(second, Evidence)
    assert first.steering_id == second.steering_id == steering_id
    assert third == silence()


def fed(*answers: Evidence | Silence) -> tuple[FedChronyd, Selection]:
    selection = Selection()
    return FedChronyd(Said(*answers), {"PTP0": Said(evidence(reference=REFERENCE))}, selection), selection


def test_the_ptp_side_learns_what_chronyd_follows() -> None:
    on_ptp = evidence(reference=replace(REFERENCE, identity=None, source_name="PTP0"))
    source, selection = fed(on_ptp, evidence(), silence())
    assert selection.is_on("PTP0") is None
    seen: list[tuple[str | None, bool | None]] = []
    for _ in range(3):
        measurement = source.read()
        identity = measurement.reference.identity if isinstance(measurement, Evidence) else None
        seen.append((identity, selection.is_on("PTP0")))
    assert seen == [(REFERENCE.identity, True), (REFERENCE.identity, False), (None, None)]


def closing(calls: list[str], name: str) -> Callable[[], None]:
    return lambda: calls.append(name)


def test_everything_that_was_opened_is_closed() -> None:
    calls: list[str] = []
    Measuring(Said(silence()), closers=(closing(calls, "a"), closing(calls, "b"))).close()
    assert calls == ["a", "b"]
