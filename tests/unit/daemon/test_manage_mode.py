from dataclasses import replace

import pytest
from clockgated.manage.facts import Facts, Tool
from clockgated.manage.mode import Choice, PlanCode, choose_mode
from clockgated.manage.settings import ManageSettings, Mode, NtpSettings, PtpSettings, Role, TimeServer, Timestamping
from support.plan_hosts import NTP_CLIENT, PTP_AND_NTP, PTP_HARDWARE, PTP_SOFTWARE, SERVERS, host, nic

AUTO = ManageSettings(Mode.AUTO, ntp=NtpSettings(servers=SERVERS))
AUTO_WITHOUT_SERVERS = ManageSettings(Mode.AUTO)
PROVEN = host((4, 3), (3, 1, 1), nic("eth0", phc=0, proven=True))
PLAIN = host()


def codes(choice: Choice) -> list[PlanCode]:
    return [reason.code for reason in choice.reasons]


@pytest.mark.parametrize(
    ("settings", "facts", "mode", "causes"),
    [
        (AUTO, PROVEN, Mode.PTP_NTP, [PlanCode.PTP_PROVEN, PlanCode.NTP_AS_FALLBACK]),
        (AUTO_WITHOUT_SERVERS, PROVEN, Mode.PTP, [PlanCode.PTP_PROVEN, PlanCode.NO_NTP_SOURCE]),
        (AUTO, PLAIN, Mode.NTP, [PlanCode.PTP_NOT_PROVEN]),
        (AUTO, replace(PLAIN, node_count=8), Mode.NTP, [PlanCode.PTP_NOT_PROVEN]),
        (AUTO, replace(PLAIN, node_count=9), Mode.PTP_NTP, [PlanCode.CLUSTER_SIZE, PlanCode.NTP_AS_FALLBACK]),
        (AUTO_WITHOUT_SERVERS, replace(PLAIN, node_count=9), Mode.PTP, [PlanCode.CLUSTER_SIZE, PlanCode.NO_NTP_SOURCE]),
        (
            AUTO_WITHOUT_SERVERS,
            PLAIN,
            Mode.OBSERVE,
            [PlanCode.PTP_NOT_PROVEN, PlanCode.NO_NTP_SOURCE, PlanCode.NOTHING_TO_RUN],
        ),
        (AUTO, replace(PROVEN, ptp4l=None), Mode.NTP, [PlanCode.PTP_PROVEN, PlanCode.TOOL_MISSING]),
        (AUTO, replace(PROVEN, phc2sys=None), Mode.NTP, [PlanCode.PTP_PROVEN, PlanCode.TOOL_MISSING]),
        (AUTO, replace(PROVEN, chronyd=None), Mode.PTP, [PlanCode.PTP_PROVEN, PlanCode.TOOL_MISSING]),
        (
            replace(AUTO, ptp=PtpSettings(role=Role.GRANDMASTER)),
            PLAIN,
            Mode.PTP_NTP,
            [PlanCode.ASKED_FOR, PlanCode.NTP_AS_FALLBACK],
        ),
    ],
)
def test_automatic_mode_and_its_reasons(
    settings: ManageSettings, facts: Facts, mode: Mode, causes: list[PlanCode]
) -> None:
    choice = choose_mode(settings, facts)
    assert choice.mode is mode
    assert codes(choice) == causes


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.NTP, Mode.PTP, Mode.PTP_NTP])
def test_without_root_the_clock_is_observed(mode: Mode) -> None:
    choice = choose_mode(replace(PTP_AND_NTP, mode=mode), replace(PROVEN, is_root=False))
    assert choice.mode is Mode.OBSERVE
    assert codes(choice) == [PlanCode.NOT_ROOT]
    assert "run clockgated as root" in choice.reasons[0].detail


@pytest.mark.parametrize(("ticks", "arrives"), [(False, None), (True, False), (None, True), (True, None), (None, None)])
def test_hardware_that_failed_or_skipped_a_trial_is_not_proof(ticks: bool | None, arrives: bool | None) -> None:
    card = replace(nic("eth0", phc=0), phc_ticks=ticks, tx_stamp_arrives=arrives)
    assert choose_mode(AUTO, host((4, 3), (3, 1, 1), card)).mode is Mode.NTP


def test_reason_tells_the_operator_what_was_seen() -> None:
    (reason,) = choose_mode(AUTO, replace(PLAIN, node_count=4)).reasons
    assert "4 nodes" in reason.detail
    assert "up to 8" in reason.detail
    proven = choose_mode(AUTO, PROVEN).reasons[0]
    assert "eth0 (/dev/ptp0)" in proven.detail


@pytest.mark.parametrize(
    ("settings", "facts", "cause"),
    [
        (NTP_CLIENT, replace(PLAIN, chronyd=None), PlanCode.TOOL_MISSING),
        (NTP_CLIENT, replace(PLAIN, chronyd=Tool("/x", (4, 1))), PlanCode.TOOL_TOO_OLD),
        (PTP_SOFTWARE, replace(PLAIN, ptp4l=None), PlanCode.TOOL_MISSING),
        (PTP_SOFTWARE, replace(PLAIN, ptp4l=Tool("/x", (3, 1))), PlanCode.TOOL_TOO_OLD),
        (PTP_HARDWARE, replace(PROVEN, phc2sys=None), PlanCode.TOOL_MISSING),
        (PTP_AND_NTP, replace(PLAIN, chronyd=None), PlanCode.TOOL_MISSING),
        (replace(PTP_SOFTWARE, ptp=PtpSettings(("eth7",))), PLAIN, PlanCode.NO_PTP_PORT),
        (replace(PTP_SOFTWARE, ptp=PtpSettings(("eth0",), domain=128)), PLAIN, PlanCode.OPTION_UNKNOWN),
    ],
)
def test_mode_asked_for_by_name_is_refused_rather_than_replaced(
    settings: ManageSettings, facts: Facts, cause: PlanCode
) -> None:
    choice = choose_mode(settings, facts)
    assert choice.mode is Mode.OBSERVE
    assert codes(choice) == [PlanCode.ASKED_FOR, cause]


def test_high_domain_is_taken_from_linuxptp_4_on() -> None:
    settings = replace(PTP_SOFTWARE, ptp=PtpSettings(("eth0",), domain=128))
    assert choose_mode(settings, host(None, (4, 0))).mode is Mode.PTP


def test_nts_servers_are_no_source_for_a_chronyd_without_nts() -> None:
    settings = replace(NTP_CLIENT, ntp=NtpSettings(servers=(TimeServer("a", nts=True),)))
    without = replace(PLAIN, chronyd=Tool("/usr/sbin/chronyd", (4, 3), frozenset({"REFCLOCK"})))
    assert choose_mode(settings, PLAIN).mode is Mode.NTP
    choice = choose_mode(settings, without)
    assert codes(choice) == [PlanCode.ASKED_FOR, PlanCode.NO_NTP_SOURCE]
    assert "NTS" in choice.reasons[1].detail


def test_observe_asks_for_nothing() -> None:
    assert choose_mode(ManageSettings(Mode.OBSERVE), Facts()).mode is Mode.OBSERVE


def test_release_that_was_never_tried_is_used_with_a_warning() -> None:
    newer = replace(PLAIN, chronyd=Tool("/usr/sbin/chronyd", (5, 0)))
    choice = choose_mode(NTP_CLIENT, newer)
    assert choice.mode is Mode.NTP
    assert "chrony 5.0 is newer than 4.9" in choice.warnings[0]


def test_software_stamps_need_no_phc2sys() -> None:
    settings = replace(PTP_SOFTWARE, ptp=replace(PTP_SOFTWARE.ptp, timestamping=Timestamping.AUTO))
    assert choose_mode(settings, replace(PLAIN, phc2sys=None)).mode is Mode.PTP
