"""Points in a rank's life at which a fault strikes, named after what the rank is about to do.

A point is the call, or the return, of a function of the trainer, seen by Python's profiler: the program under test is
not changed for it, and a function that is renamed makes `resolve` fail instead of a fault that never strikes.
"""

import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from clockgate_trainer.gate.model import Kind

_GATE = "clockgate_trainer.gate.gate:ClockGate"
_NETWORK = "clockgate_trainer.train.network:Network"
_SAVER = "clockgate_trainer.train.saving:Saver"
_HANDSHAKE_S = 30


@dataclass(frozen=True)
class Where:
    """`function` is "module:name.of.it"; `event` is call or return. `kind` is that of the newest vote that was begun
    (None: any), `nth` counts matches within one step from 1. `late` says that the rank is in the step after the one
    that was voted on last.
    """

    function: str
    event: str = "call"
    kind: Kind | None = None
    nth: int = 1
    late: bool = False


PHASES: Mapping[str, Where] = {
    "accumulating": Where(f"{_NETWORK}.without_exchange", late=True),
    "before the vote": Where(f"{_GATE}.begin"),
    "forward while voting": Where(f"{_NETWORK}.loss_sum", kind=Kind.STEP),
    "in the vote": Where(f"{_GATE}.settle"),
    "after the vote": Where(f"{_GATE}.settle", "return"),
    "before the all-reduce": Where(f"{_NETWORK}.backward", kind=Kind.STEP),
    "in the all-reduce": Where("support.chaos.small:within_backward", kind=Kind.STEP),
    "after the all-reduce": Where(f"{_NETWORK}.total"),
    "before the update": Where(f"{_NETWORK}.clip"),
    "after the update": Where(f"{_NETWORK}.drop_gradients"),
    "before the save": Where(f"{_SAVER}.save"),
    "before the save vote": Where(f"{_GATE}.agree", kind=Kind.SAVE),
    "gathering states": Where("clockgate_trainer.train.distributed:Meeting.bring_to_first"),
    "staging": Where("support.chaos.small:SmallModel.save_pretrained"),
    "adapter staged": Where("support.chaos.small:SmallModel.save_pretrained", "return"),
    "before the manifest": Where("clockgate_trainer.checkpoint.manifest:to_json"),
    "before COMMIT": Where(f"{_GATE}.agree", kind=Kind.COMMIT),
    "before the rename": Where("clockgate_trainer.checkpoint.publish:publish"),
    "after the rename": Where("clockgate_trainer.checkpoint.files:HostFiles.rename", "return", kind=Kind.COMMIT),
    "before rotation": Where("clockgate_trainer.checkpoint.publish:rotate"),
    "rotating": Where("clockgate_trainer.checkpoint.files:HostFiles.rename", "return", kind=Kind.COMMIT, nth=2),
    "before the last COMMIT": Where(f"{_GATE}.agree", kind=Kind.COMMIT, nth=2),
    "after the save": Where(f"{_SAVER}.save", "return"),
    "before EXIT": Where(f"{_GATE}.agree", kind=Kind.EXIT),
}
LEADER_ONLY = frozenset(
    ("staging", "adapter staged", "before the manifest", "before the rename", "after the rename", "before rotation",
     "rotating")
)  # fmt: skip
"""Phases that only rank 0 comes through."""


@dataclass(frozen=True)
class Armed:
    """One fault that waits in `rank` for `phase` of `step` (of the first save at or after it, in phases of a save).

    `action` is the name of a signal that the rank sends to itself, or of one of `arm`'s actions, or `meet`: the rank
    waits until the conductor has done its deed. `mark` is a path: `mark`.fired appears when it strikes, and `mark`.done
    ends a meeting.
    """

    rank: int
    phase: str
    step: int
    action: str
    mark: str


def resolve(function: str) -> CodeType:
    """The code of "module:name.of.it". Raises AttributeError or ImportError when it is not there."""
    module, _, path = function.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    code: CodeType = found.__code__
    return code


def arm(armed: Sequence[Armed], actions: Mapping[str, Callable[[], None]]) -> None:
    """Let `armed` strike in this process, in any of its threads; what has struck before does not strike again."""
    left = [one for one in armed if not Path(f"{one.mark}.fired").exists()]
    if left:
        watch = _Watch(left, actions)
        threading.setprofile(watch)
        sys.setprofile(watch)


class _Watch:
    """The profile function: knows step and kind of the newest vote, and what is still to strike."""

    def __init__(self, armed: Sequence[Armed], actions: Mapping[str, Callable[[], None]]) -> None:
        self._actions = actions
        self._step = 0
        self._kind: Kind | None = None
        self._seen: dict[Armed, int] = {}
        self._begin, self._agree = resolve(f"{_GATE}.begin"), resolve(f"{_GATE}.agree")
        self._waiting: dict[tuple[CodeType, str], list[Armed]] = {}
        for one in armed:
            where = PHASES[one.phase]
            self._waiting.setdefault((resolve(where.function), where.event), []).append(one)

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call":
            self._follow(code, frame)
        for one in self._waiting.get((code, event), ()):
            if self._matches(one):
                self._waiting[code, event].remove(one)
                _strike(one, self._actions)
                return

    def _follow(self, code: CodeType, frame: FrameType) -> None:
        if code is self._begin:
            self._step, self._kind, self._seen = frame.f_locals["step"], Kind.STEP, {}
        elif code is self._agree:
            self._kind = frame.f_locals["kind"]

    def _matches(self, one: Armed) -> bool:
        where = PHASES[one.phase]
        due = self._step + where.late >= one.step
        if not due or (where.kind is not None and where.kind is not self._kind):
            return False
        self._seen[one] = self._seen.get(one, 0) + 1
        return self._seen[one] == where.nth


def _strike(one: Armed, actions: Mapping[str, Callable[[], None]]) -> None:
    Path(f"{one.mark}.fired").touch()
    if one.action in actions:
        actions[one.action]()
        return
    if one.action != "meet":
        os.kill(os.getpid(), signal.Signals[one.action])
        return
    done, due = Path(f"{one.mark}.done"), time.monotonic() + _HANDSHAKE_S
    while not done.exists() and time.monotonic() < due:
        time.sleep(0.003)
