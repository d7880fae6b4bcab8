"""A systemctl for tests: it runs what drop-ins say, restarts what ended, and remembers what it was asked.

    fake_systemctl.py FOLDER [OPTION...] COMMAND [ARGUMENT...]

FOLDER/system holds the drop-ins, FOLDER/state.json the units (only those in FOLDER/installed exist), FOLDER/calls one
command a line. FOLDER/hang makes it sleep, FOLDER/broken makes it fail. As in systemd, drop-ins count from the last
daemon-reload on. Ended programs are noticed at the next call.
"""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_FOLDER = Path(sys.argv[1])
_OPTIONS = [word for word in sys.argv[2:] if word.startswith("-")]
_WORDS = [word for word in sys.argv[2:] if not word.startswith("-")]


def main() -> int:
    """One call."""
    with (_FOLDER / "calls").open("a") as calls:
        calls.write(" ".join(_WORDS) + "\n")
    if (_FOLDER / "hang").exists():
        time.sleep(60)
    if (_FOLDER / "broken").exists():
        print("Failed to connect to bus: No such file or directory", file=sys.stderr)
        return 1
    path = _FOLDER / "state.json"
    units: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for unit in units.values():
        _notice(unit)
    command, *arguments = _WORDS
    code = _COMMANDS[command](units, arguments)
    path.write_text(json.dumps(units))
    return code


def _notice(unit: dict[str, Any]) -> None:
    if unit["ActiveState"] == "active" and not _lives(unit["MainPID"]):
        unit.update(NRestarts=unit["NRestarts"] + 1, Result="exit-code", ExecMainStatus=1)
        _spawn(unit)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _spawn(unit: dict[str, Any]) -> None:
    settings = dict(unit["environment"])
    try:
        process = subprocess.Popen(
            unit["argv"], env={**os.environ, **settings}, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:
        unit.update(ActiveState="activating", SubState="auto-restart", MainPID=0)
        return
    started_us = time.monotonic_ns() // 1000
    unit.update(
        ActiveState="active", SubState="running", MainPID=process.pid, ExecMainStartTimestampMonotonic=started_us
    )


def _reload(units: dict[str, Any], _arguments: list[str]) -> int:
    for name in (_FOLDER / "installed").read_text().split():
        unit = units.setdefault(name, {"ActiveState": "inactive", "SubState": "dead", "MainPID": 0, "NRestarts": 0})
        text = unit["text"] = _drop_in(name)
        pairs = [line.partition("=") for line in text.splitlines()]
        unit["argv"] = [word for key, _, value in pairs if key == "ExecStart" and value for word in shlex.split(value)]
        unit["environment"] = [shlex.split(value)[0].split("=", 1) for key, _, value in pairs if key == "Environment"]
    return 0


def _drop_in(name: str) -> str:
    path = _FOLDER / "system" / f"{name}.d" / "10-clockgate.conf"
    return path.read_text() if path.exists() else ""


def _start(units: dict[str, Any], arguments: list[str]) -> int:
    unit = units.get(arguments[0])
    if unit is None:
        print(f"Failed to start {arguments[0]}: Unit {arguments[0]} not found.", file=sys.stderr)
        return 5
    if unit["ActiveState"] != "active":
        unit["NRestarts"] = 0
        _spawn(unit)
    return 0


def _end(unit: dict[str, Any], number: signal.Signals) -> None:
    if unit["MainPID"]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(unit["MainPID"], number)
        due = time.monotonic() + 5
        while _lives(unit["MainPID"]) and time.monotonic() < due:
            time.sleep(0.01)


def _stop(units: dict[str, Any], arguments: list[str]) -> int:
    unit = units[arguments[0]]
    _end(unit, signal.SIGKILL)
    unit.update(ActiveState="inactive", SubState="dead", MainPID=0)
    return 0


def _restart(units: dict[str, Any], arguments: list[str]) -> int:
    _stop(units, arguments)
    return _start(units, arguments)


def _kill(units: dict[str, Any], arguments: list[str]) -> int:
    assert "--signal=SIGKILL" in _OPTIONS
    _end(units[arguments[0]], signal.SIGKILL)
    return 0


def _show(units: dict[str, Any], arguments: list[str]) -> int:
    shown = []
    for name in arguments:
        unit = units.get(name)
        values = {"Id": name, "LoadState": "not-found", "ActiveState": "inactive"}
        if unit is not None:
            is_old = unit["text"] != _drop_in(name)
            values |= {
                "NeedDaemonReload": "yes" if is_old else "no",
                "LoadState": "loaded",
                **{key: unit[key] for key in unit if key[0].isupper()},
            }
        shown.append("".join(f"{key}={value}\n" for key, value in values.items()))
    print("\n".join(shown), end="")
    return 0


_COMMANDS = {
    "daemon-reload": _reload,
    "start": _start,
    "stop": _stop,
    "restart": _restart,
    "kill": _kill,
    "show": _show,
}

if __name__ == "__main__":
    sys.exit(main())
