"""Taking the clock over from other units and giving it back: the record on disk, and systemctl.

The record is written, durably, before anything is changed, and removed after everything is given back: killed at any
instant, the next start knows what to undo. A runtime mask would be gone after a reboot with the unit still disabled,
so both are persistent.
"""

import json
import logging
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from clockgated.durable import replace_file, sync_folder
from clockgated.manage.planned import Folders
from clockgated.manage.takeover import Command, UnitRecord, give_back, merged, take

_log = logging.getLogger(__name__)
_FORMAT = 1
# Longer than systemd waits before it kills a unit that does not stop.
_TIMEOUT_S = 120.0

Run = Callable[[Command], str | None]
"""Runs one command; None, or what went wrong."""


def run_command(command: Command) -> str | None:
    """Run it to its end; None, or what went wrong."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{' '.join(command)}: {error}"
    return None if done.returncode == 0 else f"{' '.join(command)}: {done.stderr.strip()[-300:]}"


class Handover:
    """The units that are taken over, over any number of starts."""

    def __init__(self, folders: Folders, run: Run = run_command) -> None:
        self._path = Path(folders.state) / "taken-over.json"
        self._run = run

    def records(self) -> tuple[UnitRecord, ...]:
        """What is taken over. Raises OSError when there is a record that cannot be read: better not to go on then."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return ()
        found = parse(data)
        if isinstance(found, str):
            raise OSError(f"{self._path}: {found}; enable the units again that it is about, then remove it")
        return found

    def take(self, units: Sequence[UnitRecord]) -> tuple[str, ...]:
        """Record `units`, then stop, disable and mask them; what went wrong. Raises OSError before any change."""
        records = merged(self.records(), units)
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        replace_file(self._path, encode(records))
        return self._done(command for record in units for command in take(record))

    def give_back(self) -> tuple[str, ...]:
        """Bring everything back to its record and forget it; what went wrong, and then the record stays.

        Raises OSError when the record cannot be read or removed.
        """
        complaints = self._done(command for record in self.records() for command in give_back(record))
        if not complaints and self._path.exists():
            self._path.unlink()
            sync_folder(self._path.parent)
        return complaints

    def _done(self, commands: Iterable[Command]) -> tuple[str, ...]:
        complaints = []
        for command in commands:
            complaint = self._run(command)
            if complaint is None:
                _log.info("%s", " ".join(command))
            else:
                _log.error("%s", complaint)
                complaints.append(complaint)
        return tuple(complaints)


def encode(records: Sequence[UnitRecord]) -> bytes:
    """The record as stored."""
    return json.dumps({"format": _FORMAT, "units": [asdict(one) for one in records]}, indent=2).encode() + b"\n"


def parse(data: bytes) -> tuple[UnitRecord, ...] | str:
    """The stored records, or what is wrong with them. Never raises."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    if not isinstance(fields, dict) or fields.get("format") != _FORMAT or not isinstance(fields.get("units"), list):
        return f"not a record of format {_FORMAT}"
    wanted = {"unit": str, "was_enabled": bool, "was_active": bool, "was_masked": bool}
    for unit in fields["units"]:
        if not isinstance(unit, dict) or {key: type(value) for key, value in unit.items()} != wanted:
            return f"unit {unit!r:.200}: wanted {', '.join(wanted)}"
    return tuple(UnitRecord(**unit) for unit in fields["units"])
