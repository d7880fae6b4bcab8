"""Every plan of the modes, for every supported release, byte for byte as it was reviewed.

A change of these files is a change of what runs on every node: it restarts the time daemons there.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from clockgated.manage.facts import Facts, Version, spell_version
from clockgated.manage.plan import make_plan, print_plan
from clockgated.manage.settings import ManageSettings
from support.plan_hosts import (
    CHRONY_VERSIONS,
    FOLDERS,
    GRANDMASTER,
    LINUXPTP_VERSIONS,
    NTP_SERVER_OF_A_CLUSTER,
    PTP_AND_NTP,
    PTP_HARDWARE,
    PTP_SOFTWARE,
    host,
    nic,
)

GOLDEN = Path(__file__).parents[2] / "support/golden/plans"


def _hardware(chrony: Version | None, linuxptp: Version) -> Facts:
    return host(chrony, linuxptp, nic("eth0", phc=0, proven=True), nic("eth1", phc=1, proven=True))


def cases() -> Iterator[tuple[str, ManageSettings, Facts]]:
    for chrony in CHRONY_VERSIONS:
        yield f"ntp_server_chrony_{spell_version(chrony)}", NTP_SERVER_OF_A_CLUSTER, host(chrony, None)
    for linuxptp in LINUXPTP_VERSIONS:
        spelled = spell_version(linuxptp)
        yield f"ptp_software_linuxptp_{spelled}", PTP_SOFTWARE, host(None, linuxptp)
        yield f"ptp_hardware_linuxptp_{spelled}", PTP_HARDWARE, _hardware(None, linuxptp)
        yield f"ptp_ntp_linuxptp_{spelled}", PTP_AND_NTP, _hardware((4, 3), linuxptp)
        yield f"grandmaster_linuxptp_{spelled}", GRANDMASTER, _hardware((4, 3), linuxptp)


def rendered() -> Iterator[tuple[str, str]]:
    for name, settings, facts in cases():
        yield f"{name}.txt", print_plan(make_plan(settings, facts, FOLDERS))


@pytest.mark.parametrize(("name", "text"), [pytest.param(*case, id=case[0]) for case in rendered()])
def test_plan_is_the_reviewed_one(name: str, text: str) -> None:
    assert text.splitlines() == (GOLDEN / name).read_text().splitlines()


def test_every_reviewed_plan_is_still_made() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {name for name, _ in rendered()}
