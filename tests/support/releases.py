"""The time daemons of every release that has been unpacked on this machine, for tests of what each accepts."""

from dataclasses import dataclass, replace

from clockgated.manage.facts import Facts, Tool, spell_version
from clockgated.manage.probe import find_tool
from support.tools import ROOT

FETCH = "sh packaging/fetch-release-tools.sh .cache/releases trixie"

_HOST_TOOLS = ROOT / ".cache/tools/usr"
_RELEASES = ROOT / ".cache/releases"


@dataclass(frozen=True)
class Release:
    """chronyd, ptp4l and phc2sys of one Debian or Ubuntu release."""

    suite: str
    chronyd: Tool
    ptp4l: Tool
    phc2sys: Tool

    @property
    def label(self) -> str:
        """For test names."""
        return f"{self.suite}-chrony{spell_version(self.chronyd.version)}-linuxptp{spell_version(self.ptp4l.version)}"

    def onto(self, facts: Facts) -> Facts:
        """The same host with this release's programs."""
        return replace(facts, chronyd=self.chronyd, ptp4l=self.ptp4l, phc2sys=self.phc2sys)


def releases() -> tuple[Release, ...]:
    """Unpacked releases, the build host's own first; empty when none has been fetched."""
    # Unpacked beside the repository, or else installed.
    unpacked = _HOST_TOOLS / "sbin"
    folders = [("host", unpacked if (unpacked / "chronyd").exists() else None)]
    folders += [(folder.parent.name, folder) for folder in sorted(_RELEASES.glob("*/bin"))]
    found: list[Release] = []
    for suite, folder in folders:
        chronyd, ptp4l, phc2sys = (
            find_tool(name, str(folder / name) if folder is not None else None)
            for name in ("chronyd", "ptp4l", "phc2sys")
        )
        if chronyd is not None and ptp4l is not None and phc2sys is not None:
            found.append(Release(suite, chronyd, ptp4l, phc2sys))
    return tuple(found)
