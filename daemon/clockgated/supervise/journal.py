"""The output of units, brought back line by line: journalctl, followed as a child of this process."""

from collections.abc import Mapping
from pathlib import Path

from clockgated.supervise.base import ChildSpec
from clockgated.supervise.children import ChildrenBackend
from clockgated.supervise.output import LineCallback
from clockgated.supervise.policy import RestartPolicy
from clockgated.supervise.unit_text import journal_argv, parse_journal_line
from clockgated.units import NS_PER_S

_NAME = "journal"


class JournalFollower:
    """Hands each line that a unit writes from now on to `on_line(name, line)`, on a thread of its own.

    Lines that are written while journalctl comes up, and the first ones of a unit that never wrote before, are lost
    here; the journal has them.
    """

    def __init__(
        self,
        folder: Path,
        boot_id: str,
        policy: RestartPolicy,
        on_line: LineCallback,
        journalctl: str = "/usr/bin/journalctl",
    ) -> None:
        self._on_line = on_line
        self._journalctl = journalctl
        self._names: Mapping[str, str] = {}
        # The lines come from the journal; logging them would put them there once more.
        self._children = ChildrenBackend(folder, boot_id, policy, self._take, logs_lines=False)

    def poll(self, names: Mapping[str, str], now_mono_ns: int) -> None:
        """Follow the units that are the keys of `names`; the values are what `on_line` calls them."""
        self._names = dict(names)
        if names:
            self._children.start(ChildSpec(_NAME, journal_argv(self._journalctl, sorted(names))), may_step=False)
        else:
            self._children.stop(_NAME, NS_PER_S)
        self._children.poll(now_mono_ns)

    def close(self) -> None:
        """End journalctl."""
        self._children.close()

    def _take(self, _child: str, line: str) -> None:
        parsed = parse_journal_line(line)
        if parsed is not None and parsed[0] in self._names:
            self._on_line(self._names[parsed[0]], parsed[1])
