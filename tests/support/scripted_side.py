"""A clock side that says what a test wrote down for each step: no daemon, no thread, no chance."""

from collections.abc import Mapping
from dataclasses import replace

from clockgate_trainer.gate.lease import Notice
from clockgate_trainer.gate.model import SaveVerdict, StepVerdict
from clockgate_trainer.gate.policy import LocalVerdict, OnUnknown

GOOD = LocalVerdict(
    step=StepVerdict.PROCEED,
    save=SaveVerdict.SAVE,
    reasons=0,
    relative_bound_ns=100_000,
    utc_bound_ns=None,
    reference_hash=7,
    epoch=1,
    detail="",
)


class ScriptedSide:
    """`script` gives the verdicts of steps (0: the check at launch); a step that is not in it is good.

    `held` steps say HOLD as often as it tells, and then what the script says.
    """

    def __init__(
        self, script: Mapping[int, tuple[StepVerdict, SaveVerdict]] | None = None, held: Mapping[int, int] | None = None
    ) -> None:
        self._script = script or {}
        self._holds = dict(held or {})
        self.step = 0
        self.closed = False
        self.notices: list[Notice] = []

    def ask(self, step: int) -> None:
        self.step = step

    def verdict(self, now_boot_ns: int, on_unknown: OnUnknown) -> LocalVerdict:
        step, save = self._script.get(self.step, (StepVerdict.PROCEED, SaveVerdict.SAVE))
        if self._holds.get(self.step, 0) > 0:
            self._holds[self.step] -= 1
            step = StepVerdict.HOLD
        return replace(GOOD, step=step, save=save)

    def await_answer(self, timeout_s: float) -> bool:
        return True

    def reached(self) -> bool:
        return True

    def take_notices(self) -> tuple[Notice, ...]:
        taken, self.notices = tuple(self.notices), []
        return taken

    def close(self) -> None:
        self.closed = True
