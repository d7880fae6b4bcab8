import pytest
from clockgated.manage.facts import Tool, Version
from clockgated.manage.options import (
    CHRONY,
    LINUXPTP,
    NEWEST,
    OLDEST,
    TABLES,
    Lines,
    is_supported,
    legal,
    loss,
)
from hypothesis import given
from hypothesis import strategies as st
from support.plan_hosts import CHRONY_FEATURES, CHRONY_VERSIONS, LINUXPTP_VERSIONS

VERSIONS = st.lists(st.integers(0, 12), min_size=2, max_size=3).map(tuple)


def chrony(version: Version, features: frozenset[str] = CHRONY_FEATURES) -> Lines:
    return Lines(CHRONY, Tool("/usr/sbin/chronyd", version, features))


@pytest.mark.parametrize(
    ("suite", "option", "first_version", "version_before"),
    [
        (CHRONY, "leapseclist", (4, 6), (4, 5)),
        (CHRONY, "local.activate", (4, 6), (4, 5)),
        (CHRONY, "local.waitsynced", (4, 7), (4, 6, 1)),
        (LINUXPTP, "clientOnly", (4, 0), (3, 1, 1)),
        (LINUXPTP, "uds_ro_address", (4, 0), (3, 1, 1)),
        (LINUXPTP, "clock_servo=refclock_sock", (4, 0), (3, 1, 1)),
        (LINUXPTP, "ptp_minor_version", (4, 2), (4, 1)),
    ],
)
def test_option_is_legal_from_its_release_on(
    suite: str, option: str, first_version: Version, version_before: Version
) -> None:
    assert legal(suite, first_version, option)
    assert not legal(suite, version_before, option)


@pytest.mark.parametrize(("old", "new"), [("slaveOnly", "clientOnly"), ("masterOnly", "serverOnly")])
@pytest.mark.parametrize("version", LINUXPTP_VERSIONS)
def test_exactly_one_spelling_of_a_role_is_legal(version: Version, old: str, new: str) -> None:
    assert legal(LINUXPTP, version, old) is not legal(LINUXPTP, version, new)


@pytest.mark.parametrize(("suite", "versions"), [(CHRONY, CHRONY_VERSIONS), (LINUXPTP, LINUXPTP_VERSIONS)])
def test_tried_releases_are_those_named_as_oldest_and_newest(suite: str, versions: tuple[Version, ...]) -> None:
    assert (min(versions), max(versions)) == (OLDEST[suite], NEWEST[suite])
    assert all(is_supported(suite, version) for version in versions)
    assert not is_supported(suite, (1, 0))


@pytest.mark.parametrize("suite", [CHRONY, LINUXPTP])
def test_every_option_of_the_table_is_legal_in_some_supported_release(suite: str) -> None:
    # Any other would be dead weight: it could never be written.
    versions = CHRONY_VERSIONS if suite == CHRONY else LINUXPTP_VERSIONS
    for option in TABLES[suite]:
        assert any(legal(suite, version, option) for version in versions), option


@given(version=VERSIONS, newer=VERSIONS)
def test_options_without_an_end_stay_legal(version: Version, newer: Version) -> None:
    for suite, table in TABLES.items():
        for option, entry in table.items():
            if entry.until is None and newer >= version and legal(suite, version, option):
                assert legal(suite, newer, option)


def test_option_outside_the_table_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        legal(CHRONY, (4, 3), "maxstratum")


def test_unknown_option_is_left_out_and_what_is_lost_is_said() -> None:
    lines = chrony((4, 5))
    assert not lines.set("leapseclist", "/usr/share/zoneinfo/leap-seconds.list")
    rendered = lines.rendered()
    assert "leapseclist" not in rendered.text
    (lost,) = rendered.losses
    assert lost.option == "leapseclist"
    for part in ("chrony 4.5", "since 4.6", "TAI offset"):
        assert part in lost.detail


def test_directive_keeps_what_the_release_knows_of_it() -> None:
    lines = chrony((4, 6, 1))
    options = (("stratum", 10), ("orphan", True), ("distance", None), ("activate", "0.1"), ("waitsynced", "60"))
    assert lines.directive("local", options=options)
    rendered = lines.rendered()
    assert rendered.text == "local stratum 10 orphan activate 0.1\n"
    assert [lost.option for lost in rendered.losses] == ["local.waitsynced"]


def test_feature_that_was_not_compiled_in_counts_as_unknown() -> None:
    lines = chrony((4, 9), frozenset({"REFCLOCK"}))
    assert not lines.set("ntsdumpdir", "/var/lib/x")
    assert "built without NTS" in lines.rendered().losses[0].detail


def test_loss_of_a_replaced_spelling_names_the_release() -> None:
    assert "replaced in 4.0" in loss(LINUXPTP, Tool("ptp4l", (4, 2)), "slaveOnly").detail


def test_same_loss_is_told_once() -> None:
    lines = chrony((4, 3))
    lines.set("leapseclist", "/a")
    lines.set("leapseclist", "/b")
    assert len(lines.rendered().losses) == 1
