"""`ClockGateCallback`: the gate inside a training loop of transformers or TRL, as far as a callback reaches."""

import inspect
import logging
import os
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from accelerate.state import GradientState
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from clockgate_trainer.errors import ConfigError, DesyncError, ExitCode, PeerLostError, StoppedAtLaunchError
from clockgate_trainer.gate.exit import leave
from clockgate_trainer.gate.gate import ClockGate, reason_names
from clockgate_trainer.gate.model import Decision, Flags, SaveVerdict, StepVerdict
from clockgate_trainer.tell import tell

_log = logging.getLogger("clockgate_trainer")

LIMITS = (
    "a step at which the gate says STOP is finished before training ends: a callback cannot drop it",
    "checkpoints are written in place and rotated by the trainer: no staging, no manifest, no agreed time",
    "saves of a better metric (save_strategy='best') and the final save_model are the trainer's own and not gated",
)


class ClockGateCallback(TrainerCallback):
    """Holds all ranks before gradients are exchanged while their clocks are not within limits, and gates saves.

        callback = ClockGateCallback(job="my-run")
        trainer = Trainer(..., callbacks=[callback])
        trainer.train()
        sys.exit(callback.exit_code)

    `options` are those of `ClockGate.connect`, which is called when training begins, on all ranks. With `signals` the
    callback takes SIGUSR1 (save and go on), SIGUSR2 and SIGTERM (save and end). `on_lost` says what becomes of a rank
    that lost another one or is not at the same point: "leave" ends the process at once with the exit code of
    clockgate-train (79 or 77), since a normal exit waits for process groups that have lost a member; "raise" raises
    PeerLostError or DesyncError out of `trainer.train()`. `decision` is the newest one.

    The vote of a step starts before the forward of its last micro-batch and is awaited after it, by hooks on the model
    that the trainer was given; where that model's forward is not called, all ranks vote after the exchange instead, and
    a warning says so. A HOLD waits there. SKIP_SAVE clears a periodic save, which is made up for at the next step that
    may save; the last step's save is never cleared.

    What a callback cannot do is in `LIMITS`, and each training that uses one begins with a warning of it:
    a step at which the gate says STOP is finished (and saved) before training ends; checkpoints are written in place
    and rotated by the trainer; saves of a better metric and the final `save_model` are not gated. `clockgate-train` has
    none of these limits.
    """

    def __init__(self, *, signals: bool = False, on_lost: str = "leave", **options: Any) -> None:
        if on_lost not in ("leave", "raise"):
            raise ConfigError(f"on_lost is {on_lost!r}: wanted leave or raise")
        # A misspelt option is told here and not when training begins.
        inspect.signature(ClockGate.connect).bind(**options)
        self._options = options
        self._signals = signals
        self._on_lost = on_lost
        self._gate: ClockGate | None = None
        self._hooks: list[Any] = []
        self._step = 0
        self._batch = 0
        self._is_due = False
        self._is_begun = False
        self._owes_save = False
        self._told_late = False
        self.decision: Decision | None = None

    @property
    def exit_code(self) -> int:
        """What the process should end with after `trainer.train()`: 0, or 75 when the gate stopped the training."""
        decision = self.decision
        stopped = decision is not None and decision.step_verdict is StepVerdict.STOP
        return int(ExitCode.STOPPED if stopped else ExitCode.DONE)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **kwargs: Any
    ) -> None:
        """Connect, vote once before the first step, hook into the model. Raises StoppedAtLaunchError, ConfigError."""
        if state.is_world_process_zero:
            for limit in LIMITS:
                _log.warning("ClockGateCallback: %s", limit)
        # A training that an exception ended told nobody: its gate, hooks and half a step may still be here.
        self._let_go()
        self._is_due = self._is_begun = self._owes_save = False
        gate = self._gate = ClockGate.connect(**self._options)
        if self._signals:
            gate.install_signals()
        self.decision = self._guarded(gate.launch_check)
        if self.decision.step_verdict is StepVerdict.STOP:
            self._let_go()
            why = ", ".join(reason_names(self.decision.reasons))
            raise StoppedAtLaunchError(
                f"stopped by the gate before the first step: {why}; see `clockgatectl status` on the ranks' nodes",
                ranks=self.decision.blamed_ranks,
            )
        self._batch = args.per_device_train_batch_size << 32 | args.gradient_accumulation_steps
        self._hooks = [
            model.register_forward_pre_hook(self._before_forward),
            model.register_forward_hook(self._after_forward),
        ]

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Have the next forward with gradient exchange vote."""
        self._step = state.global_step + 1
        self._is_due = True

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Vote here where the hooks saw no forward."""
        if not self._is_due:
            return
        if not self._told_late:
            self._told_late = True
            _log.warning("ClockGateCallback: the model's forward is not called: ranks vote after the exchange instead")
        self._begin()
        self._settle()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Turn the decision into the trainer's flags; every rank got the same one."""
        decision = self.decision
        if decision is None:
            return control
        if decision.step_verdict is StepVerdict.STOP:
            control.should_training_stop = control.should_save = True
            return control
        if decision.flags & Flags.SAVE_AND_GO_ON:
            control.should_save = True
        return self._gate_save(state, control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Gate the save of an epoch like that of a step."""
        return self._gate_save(state, control)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Give back the lease and the hooks."""
        self._let_go()

    def _gate_save(self, state: TrainerState, control: TrainerControl) -> TrainerControl:
        is_last = state.global_step >= state.max_steps or control.should_training_stop
        may_save = self.decision is None or self.decision.save_verdict is not SaveVerdict.SKIP_SAVE
        if is_last:
            return control
        if may_save and self._owes_save:
            control.should_save = True
        elif control.should_save and not may_save:
            control.should_save = False
            self._owes_save = True
            _log.warning("ClockGateCallback: the save of step %d waits for the clocks", state.global_step)
        if control.should_save:
            self._owes_save = False
        return control

    def _before_forward(self, module: torch.nn.Module, inputs: object) -> None:
        if self._is_due and module.training and torch.is_grad_enabled() and GradientState().sync_gradients:
            self._begin()

    def _after_forward(self, module: torch.nn.Module, inputs: object, outputs: object) -> None:
        if self._is_begun:
            self._settle()

    def _begin(self) -> None:
        gate = self._gate
        if gate is None:
            raise RuntimeError("a vote before on_train_begin: the trainer calls its callbacks in another order")
        self._is_due, self._is_begun = False, True
        self._guarded(lambda: gate.begin(self._step, batch=self._batch))

    def _settle(self) -> None:
        gate = self._gate
        if gate is not None:
            self._is_begun = False
            self.decision = self._guarded(gate.settle)

    def _guarded(self, verb: Callable[[], Any]) -> Any:
        try:
            return verb()
        except (PeerLostError, DesyncError) as error:
            if self._on_lost == "raise":
                raise
            self._leave(error)

    def _leave(self, error: PeerLostError | DesyncError) -> NoReturn:
        tell(f"clockgate: {error}")
        _log.error("rank %s ends with %d: %s", os.environ.get("RANK", "0"), error.exit_code, error)
        leave(error.exit_code, logging.shutdown)

    def _let_go(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if self._gate is not None:
            self._gate.close()
            self._gate = None
