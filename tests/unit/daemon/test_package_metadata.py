"""What the Debian package says about itself, against the rest of the tree."""

import configparser
import re

from clockgated import __version__
from support.tools import ROOT

DEBIAN = ROOT / "packaging/debian"


def test_the_debian_changelog_has_the_version_of_the_tree() -> None:
    newest = (DEBIAN / "changelog").read_text().splitlines()[0]
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert newest.startswith(f"clockgate ({__version__}) ")
    assert setup["metadata"]["version"] == __version__


def test_dependencies_are_those_of_the_extras_and_no_time_daemon_is_among_them() -> None:
    control = (DEBIAN / "control").read_text()
    depends = control.split("\nDepends:")[1].split("\nRecommends:")[0]
    assert "${python3:Depends}" in depends
    assert not re.search("chrony|linuxptp|ntp|timesyncd", depends)
    assert "dh_python3 --depends-section=daemon --depends-section=systemd" in (DEBIAN / "rules").read_text()
    for relation in ("Conflicts", "Breaks", "Replaces", "Provides"):
        assert f"\n{relation}:" not in control


def test_units_of_time_daemons_share_memory_with_each_other_and_write_their_folders_alone() -> None:
    for name in ("chronyd", "ptp4l@", "phc2sys@"):
        unit = (ROOT / f"packaging/systemd/clockgate-{name}.service").read_text()
        assert "\nPrivateIPC=" not in unit
        assert "\nProtectSystem=strict\n" in unit
        assert "\nRuntimeDirectory=clockgate\n" in unit
        # Without this the end of any of them would take the sockets of all others along.
        assert "\nRuntimeDirectoryPreserve=yes\n" in unit
