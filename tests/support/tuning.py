"""Fakes at the edge of tuning: knobs in memory or below a folder, a guard that only notes, links that stamp nothing."""

import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from clockgated.tuning.journal import LinkStamps
from clockgated.tuning.model import Area, Change, Knob, LinkId, Risk, Why
from clockgated.tuning.outcome import Trouble, TroubleCode

BOOT = "11111111-2222-3333-4444-555555555555"


_MEMORY = Path("/dev/shm")


def quick_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder in memory where there is one: a property that is tried a hundred times need not wait for a disk."""
    return tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None)


class NoStamps:
    """Links that do not tell how they stamp."""

    def read(self, links: Iterable[LinkId]) -> tuple[LinkStamps, ...]:
        """See Stamps."""
        return ()

    def restore(self, before: Sequence[LinkStamps]) -> None:
        """See Stamps."""


class NotedGuard:
    """Notes when it is armed and disarmed; `complaint` keeps it from being armed."""

    def __init__(self, complaint: str | None = None) -> None:
        self.complaint = complaint
        self.calls: list[str] = []

    def arm(self, apply_id: int, after_s: float) -> str | None:
        """See Guard."""
        self.calls.append("arm")
        return self.complaint

    def disarm(self) -> None:
        """See Guard."""
        self.calls.append("disarm")


class MemoryHand:
    """Knobs in memory, with every call noted; `on_write` may change what is stored, or refuse."""

    def __init__(self, values: dict[Knob, str], on_write: Callable[[Knob, str], str | Trouble] | None = None) -> None:
        self.values = values
        self.writes: list[tuple[Knob, str]] = []
        self._on_write = on_write

    def read(self, knob: Knob) -> str | Trouble:
        """See Hand."""
        return self.values.get(knob, Trouble(TroubleCode.GONE, f"{knob.subject} is gone"))

    def write(self, knob: Knob, value: str) -> Trouble | None:
        """See Hand."""
        self.writes.append((knob, value))
        if knob not in self.values:
            return Trouble(TroubleCode.GONE, f"{knob.subject} is gone")
        stored = value if self._on_write is None else self._on_write(knob, value)
        if isinstance(stored, Trouble):
            return stored
        self.values[knob] = stored
        return None


def sysctl(key: str) -> Knob:
    """A knob below /proc/sys."""
    return Knob(0, Area.SYSCTL, key)


def change(
    key: str | Knob, found: str, wanted: str, *, resets_link: bool = False, needs_confirm: bool = False
) -> Change:
    """A change as a plan has it."""
    knob = sysctl(key) if isinstance(key, str) else key
    risk = Risk.LINK if needs_confirm else Risk.NODE
    return Change(knob, found, wanted, Why("a test"), risk, resets_link=resets_link, needs_confirm=needs_confirm)


def put(root: Path, key: str, value: str) -> Path:
    """A file of /proc/sys below `root`, with tabs as the kernel writes them."""
    path = root / "proc/sys" / key.replace(".", "/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value.replace(" ", "\t") + "\n")
    return path
