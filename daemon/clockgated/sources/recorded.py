"""A file of recorded evidence, replayed: for machines on which no time daemon can run, and for tests.

One JSON object a line, in the order of `after_s`, the time since the first reading. Each holds until the next one,
the last for ever. A line is a measurement (`bound_ns`, null for none, and the optional keys below) or a `silence`.

    {"after_s": 0, "bound_ns": 200000, "offset_ns": -1500, "identity": "ntp:192.0.2.1", "stratum": 2}
    {"after_s": 30, "silence": "unplugged"}
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clockgated import host
from clockgated.clock.model import (
    Evidence,
    Reason,
    ReasonCode,
    Reference,
    Silence,
    SourceKind,
    Traceability,
)
from clockgated.errors import ConfigError
from clockgated.units import NS_PER_S

_NO_REFERENCE = Reference()
_ASSUMPTIONS = ("this is a recording: nothing about this node's clock was measured",)


@dataclass(frozen=True)
class Frame:
    """What the file says from `after_ns` on."""

    after_ns: int
    bound_ns: int | None = None
    utc_bound_ns: int | None = None
    offset_ns: int | None = None
    estimate_95_ns: int | None = None
    reference: Reference = _NO_REFERENCE
    faults: tuple[Reason, ...] = ()
    leap_in_progress: bool = False
    steering_id: str | None = None
    silence: str | None = None


class RecordedSource:
    """Replays `file`, which is read once. ConfigError names file and line when it cannot be used."""

    kind = SourceKind.RECORDED

    def __init__(self, file: Path, stamp: Callable[[], host.Stamp] = host.stamp) -> None:
        self._frames = _load(file)
        self._stamp = stamp
        self._start_boot_ns: int | None = None

    def read(self) -> Evidence | Silence:
        """The frame that holds now; the first reading starts the replay. Never blocks."""
        now_boot_ns = self._stamp().boot_ns
        if self._start_boot_ns is None:
            self._start_boot_ns = now_boot_ns
        elapsed_ns = now_boot_ns - self._start_boot_ns
        frame = [frame for frame in self._frames if frame.after_ns <= elapsed_ns][-1]
        if frame.silence is not None:
            return Silence(self.kind, now_boot_ns, Reason(ReasonCode.SOURCE_UNREACHABLE, frame.silence))
        return Evidence(
            kind=self.kind,
            as_of_boot_ns=now_boot_ns,
            bound_ns=frame.bound_ns,
            utc_bound_ns=frame.utc_bound_ns,
            offset_ns=frame.offset_ns,
            estimate_95_ns=frame.estimate_95_ns,
            reference=frame.reference,
            faults=frame.faults,
            assumptions=_ASSUMPTIONS,
            leap_in_progress=frame.leap_in_progress,
            steering_id=frame.steering_id,
        )


def _load(file: Path) -> tuple[Frame, ...]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: the recording cannot be read: {error}") from error
    frames: list[Frame] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            frame = _frame(json.loads(line))
            _check_order(frames, frame)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{file}, line {number}: {error}") from error
        frames.append(frame)
    if not frames:
        raise ConfigError(f"{file}: the recording is empty; wanted one JSON object a line")
    return tuple(frames)


def _check_order(frames: list[Frame], frame: Frame) -> None:
    if not frames and frame.after_ns != 0:
        raise ValueError("after_s of the first line must be 0")
    if frames and frame.after_ns <= frames[-1].after_ns:
        raise ValueError(f"after_s must rise; the line before has {frames[-1].after_ns / NS_PER_S:g}")


def _frame(value: object) -> Frame:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r:.60} is not a JSON object")
    unknown = sorted(set(value) - set(_KEYS))
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; known are {', '.join(_KEYS)}")
    read = {key: _KEYS[key](key, value[key]) for key in value}
    if "after_s" not in read:
        raise ValueError("after_s is missing; wanted seconds since the first reading")
    after_ns = round(read["after_s"] * NS_PER_S)
    if "silence" in read:
        if len(read) > 2:
            raise ValueError("silence excludes every key but after_s")
        return Frame(after_ns, silence=read["silence"])
    if "bound_ns" not in read:
        raise ValueError("bound_ns or silence is missing; bound_ns null means that no bound is known")
    return _measurement(after_ns, read)


def _measurement(after_ns: int, read: Mapping[str, Any]) -> Frame:
    return Frame(
        after_ns=after_ns,
        bound_ns=read["bound_ns"],
        utc_bound_ns=read.get("utc_bound_ns", read["bound_ns"]),
        offset_ns=read.get("offset_ns"),
        estimate_95_ns=read.get("estimate_95_ns"),
        reference=Reference(
            identity=read.get("identity"),
            source_name=read.get("source_name") or "",
            stratum=read.get("stratum"),
            traceability=read.get("traceability", Traceability.UNKNOWN),
        ),
        faults=read.get("faults", ()),
        leap_in_progress=read.get("leap_in_progress", False),
        steering_id=read.get("steering_id"),
    )


def _seconds(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e9 or math.isnan(value):
        raise ValueError(f"{key} is {value!r}; wanted seconds from 0 to 1e9")
    return float(value)


def _whole(key: str, value: object, low: int, high: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{key} is {value!r}; wanted a whole number from {low} to {high}, or null")
    return value


def _bound(key: str, value: object) -> int | None:
    # 0 is refused: it would claim a perfect clock where null was meant.
    return _whole(key, value, 1, 10**15)


def _offset(key: str, value: object) -> int | None:
    return _whole(key, value, -(10**15), 10**15)


def _stratum(key: str, value: object) -> int | None:
    return _whole(key, value, 1, 15)


def _text(key: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{key} is {value!r}; wanted a text or null")
    return value or None


def _cause(key: str, value: object) -> str:
    return _text(key, value) or "the recording is silent here"


def _flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{key} is {value!r}; wanted true or false")
    return value


def _traceability(key: str, value: object) -> Traceability:
    names = {"yes": Traceability.YES, "no": Traceability.NO, "unknown": Traceability.UNKNOWN}
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"{key} is {value!r}; wanted one of {', '.join(names)}")
    return names[value]


def _faults(key: str, value: object) -> tuple[Reason, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{key} is {value!r}; wanted a list of reason codes")
    unknown = [name for name in value if name not in ReasonCode.__members__]
    if unknown:
        raise ValueError(f"{key} holds {unknown[0]!r}; known are {', '.join(ReasonCode.__members__)}")
    return tuple(Reason(ReasonCode[name], "as recorded") for name in value)


_KEYS: Mapping[str, Callable[[str, object], Any]] = {
    "after_s": _seconds,
    "bound_ns": _bound,
    "utc_bound_ns": _bound,
    "offset_ns": _offset,
    "estimate_95_ns": _bound,
    "identity": _text,
    "source_name": _text,
    "stratum": _stratum,
    "traceability": _traceability,
    "faults": _faults,
    "leap_in_progress": _flag,
    "steering_id": _text,
    "silence": _cause,
}
