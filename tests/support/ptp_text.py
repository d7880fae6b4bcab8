"""Answers of pmc as text, and the report that they make, for tests of what reads and judges them."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from clockgated.clock.model import Evidence, ReasonCode
from clockgated.clock.ptp_report import PtpReport
from clockgated.sources.pmc_text import parse, ptp_report

OWN, MASTER, OTHER = "02aa00.fffe.000002", "02aa00.fffe.000001", "02aa00.fffe.000009"

_MEMBERS: dict[str, dict[str, str]] = {
    "CURRENT_DATA_SET": {"stepsRemoved": "1", "offsetFromMaster": "-94.0", "meanPathDelay": "2030.5"},
    "PARENT_DATA_SET": {
        "parentPortIdentity": f"{MASTER}-1", "parentStats": "0",
        "observedParentOffsetScaledLogVariance": "0xffff", "observedParentClockPhaseChangeRate": "0x7fffffff",
        "grandmasterPriority1": "128", "gm.ClockClass": "6", "gm.ClockAccuracy": "0x21",
        "gm.OffsetScaledLogVariance": "0x4e5d", "grandmasterPriority2": "128", "grandmasterIdentity": MASTER,
    },
    "TIME_PROPERTIES_DATA_SET": {
        "currentUtcOffset": "37", "leap61": "0", "leap59": "0", "currentUtcOffsetValid": "1", "ptpTimescale": "1",
        "timeTraceable": "1", "frequencyTraceable": "1", "timeSource": "0x20",
    },
    "PORT_DATA_SET": {
        "portIdentity": f"{OWN}-1", "portState": "SLAVE", "logMinDelayReqInterval": "0", "peerMeanPathDelay": "0",
        "logAnnounceInterval": "1", "announceReceiptTimeout": "3", "logSyncInterval": "0", "delayMechanism": "1",
        "logMinPdelayReqInterval": "0", "versionNumber": "2",
    },
    "TIME_STATUS_NP": {
        "master_offset": "-94", "ingress_time": "1262304019317079596", "cumulativeScaledRateOffset": "+0.000000000",
        "scaledLastGmPhaseChange": "0", "gmTimeBaseIndicator": "0",
        "lastGmPhaseChange": "0x0000'0000000000000000.0000", "gmPresent": "true", "gmIdentity": MASTER,
    },
}  # fmt: skip


def block(data_set: str, changes: Mapping[str, str] | None = None, clock_id: str = OWN, port: int = 1) -> str:
    """One answer as 3.1.1 prints it, with some members changed."""
    members = {**_MEMBERS[data_set], **(changes or {})}
    width = max(map(len, members))
    lines = [f"\t\t{key:<{width}} {value}\n" for key, value in members.items()]
    return f"\t{clock_id}-{port} seq 7 RESPONSE MANAGEMENT {data_set} \n" + "".join(lines)


def a_round(**changes: str) -> bytes:
    """A whole round of one port; each change is of the member of that name, in every data set that has it.

    A dot in a member's name is written as two underscores.
    """
    renamed = {key.replace("__", "."): value for key, value in changes.items()}
    text = ""
    for data_set, members in _MEMBERS.items():
        own = {key: value for key, value in renamed.items() if key in members}
        text += f"sending: GET {data_set}\n" + block(data_set, own)
    return text.encode()


def a_report(**changes: Any) -> PtpReport:
    """The report of a round, changed field by field."""
    return replace(_report(), **changes)


@cache
def _report() -> PtpReport:
    report = ptp_report(parse(a_round()))
    assert isinstance(report, PtpReport), report
    return report


def codes(evidence: Evidence) -> set[ReasonCode]:
    """The closed gates."""
    return {reason.code for reason in evidence.faults}


def remark_codes(evidence: Evidence) -> set[ReasonCode]:
    """The remarks."""
    return {reason.code for reason in evidence.remarks}
