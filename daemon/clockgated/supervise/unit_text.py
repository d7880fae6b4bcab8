"""What systemd is told and what it answers, as texts. Pure, and total: no answer makes a parser raise."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clockgated.supervise.base import ChildSpec
from clockgated.units import NS_PER_US

SPEC_VARIABLE = "CLOCKGATE_SPEC"
SHOWN_PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "MainPID",
    "NRestarts",
    "Result",
    "ExecMainStatus",
    "ExecMainStartTimestampMonotonic",
    "NeedDaemonReload",
)
_HEADER = "# clockgated child"


@dataclass(frozen=True)
class UnitState:
    """One unit as `systemctl show` tells it. Numbers that were absent or no numbers are None.

    `needs_reload`: its files on disk are not those that systemd has read.
    """

    unit: str
    load_state: str = ""
    active_state: str = ""
    sub_state: str = ""
    main_pid: int | None = None
    restarts: int | None = None
    result: str = ""
    exit_status: int | None = None
    started_mono_ns: int | None = None
    needs_reload: bool = False

    @property
    def is_up(self) -> bool:
        """Whether its program runs."""
        return self.active_state in ("active", "reloading") and self.main_pid is not None

    @property
    def is_down(self) -> bool:
        """Whether it is at rest: systemd neither runs nor means to run it."""
        return self.active_state in ("inactive", "failed")


def drop_in(spec: ChildSpec, argv: tuple[str, ...], restart_delay_s: int, stop_grace_s: int) -> str:
    """The drop-in that makes the unit run `spec`, with `argv` as its next command.

    systemd restarts it without limit and without us, so that a clock is steered also while clockgated is away. The
    digest in the environment is how a run tells which spec it was started with.
    """
    environment = ((SPEC_VARIABLE, spec.digest), *sorted(spec.environment))
    lines = [
        f"{_HEADER} {spec.name} {spec.digest}",
        "# Written by clockgated, which also removes it. Changes are lost.",
        "[Unit]",
        "StartLimitIntervalSec=0",
        "[Service]",
        "Type=exec",
        "ExecStart=",
        "ExecStart=" + " ".join(_quoted_word(word) for word in argv),
        *(f"Environment={_quoted(f'{key}={value}')}" for key, value in environment),
        *(["CapabilityBoundingSet=~CAP_SYS_TIME"] if spec.drop_clock_right else []),
        "Restart=always",
        f"RestartSec={restart_delay_s}",
        f"TimeoutStopSec={stop_grace_s}",
    ]
    return "\n".join(lines) + "\n"


def parse_header(text: str) -> tuple[str, str] | None:
    """Name and digest in the first line of a drop-in of ours; None for any other text."""
    words = text.partition("\n")[0].split()
    if len(words) != 5 or " ".join(words[:3]) != _HEADER:
        return None
    return words[3], words[4]


def parse_show(text: str) -> dict[str, UnitState]:
    """The units in the output of `systemctl show`, by name; what is not of that form is left out."""
    states = {}
    for block in text.replace("\r\n", "\n").split("\n\n"):
        values = dict(line.split("=", 1) for line in block.split("\n") if "=" in line)
        if values.get("Id"):
            states[values["Id"]] = _unit_state(values)
    return states


def journal_argv(journalctl: str, units: Sequence[str]) -> tuple[str, ...]:
    """The command that follows the output of `units` from now on, a JSON object a line."""
    fields = "--output-fields=MESSAGE,_SYSTEMD_UNIT"
    follow = (journalctl, "--follow", "--lines=0", "--quiet", "--no-pager", "--output=json", fields)
    return (*follow, *(f"_SYSTEMD_UNIT={unit}" for unit in units))


def parse_journal_line(line: str) -> tuple[str, str] | None:
    """Unit and message in one line of `journal_argv`; None for any other text. Journald gives what is not UTF-8, or
    is not printable, as a list of bytes.
    """
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or not isinstance(fields.get("_SYSTEMD_UNIT"), str):
        return None
    message = fields.get("MESSAGE")
    if isinstance(message, list) and all(type(one) is int and 0 <= one < 256 for one in message):
        message = bytes(message).decode("utf-8", errors="replace")
    return (fields["_SYSTEMD_UNIT"], message) if isinstance(message, str) else None


def restarts_since(seen: int | None, now: int | None) -> int:
    """How often systemd restarted a unit since `seen`. Its counter falls to 0 when somebody starts the unit by hand."""
    if seen is None or now is None:
        return 0
    return now - seen if now >= seen else now


def _unit_state(values: dict[str, str]) -> UnitState:
    started_us = _number(values.get("ExecMainStartTimestampMonotonic"))
    return UnitState(
        unit=values["Id"],
        load_state=values.get("LoadState", ""),
        active_state=values.get("ActiveState", ""),
        sub_state=values.get("SubState", ""),
        main_pid=_number(values.get("MainPID")) or None,  # systemd's word for none is 0
        restarts=_number(values.get("NRestarts")),
        result=values.get("Result", ""),
        exit_status=_number(values.get("ExecMainStatus")),
        started_mono_ns=started_us * NS_PER_US if started_us else None,
        needs_reload=values.get("NeedDaemonReload") == "yes",
    )


def _number(text: str | None) -> int | None:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 19:
        return None
    return int(text)


def _quoted_word(word: str) -> str:
    # In a command line, unlike in Environment=, systemd puts in variables; $$ is one dollar sign.
    return _quoted(word).replace("$", "$$")


def _quoted(text: str) -> str:
    """`text` between double quotes, with systemd's escapes (systemd.syntax(7)) and specifiers (%) made literal."""
    return '"' + "".join(_escapes(text)) + '"'


def _escapes(text: str) -> Iterable[str]:
    for char in text:
        if char in '"\\':
            yield "\\" + char
        elif char == "%":
            yield "%%"
        elif char.isascii() and not char.isprintable():
            yield f"\\x{ord(char):02x}"
        else:
            yield char
