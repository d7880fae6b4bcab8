"""--report_to: the logging callbacks of transformers (tensorboard, wandb, mlflow and others) as sinks of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.integrations.integration_utils import (
    get_available_reporting_integrations,
    get_reporting_integration_callbacks,
)

from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.modules import names_in
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.train.sinks import Sink


@dataclass
class _Arguments(TrainingArguments):
    """What callbacks read of a run. Leaves devices and process groups alone, which those of transformers set up."""

    @property
    def device(self) -> torch.device:
        """No callback computes."""
        return torch.device("cpu")

    @property
    def n_gpu(self) -> int:
        """See `device`."""
        return 0


class Tracker:
    """One callback of transformers."""

    def __init__(self, name: str, callback: Any, settings: Settings) -> None:
        self.name = name
        self._callback = callback
        self._settings = settings
        self._control = TrainerControl()
        self._state = TrainerState(is_local_process_zero=True, is_world_process_zero=True)
        self._arguments: TrainingArguments | None = None
        self._model: Any = None

    def begin(self, total_steps: int, model: Any) -> None:
        """See Sink."""
        self._arguments = _arguments(self._settings, total_steps)
        self._state.max_steps = total_steps
        self._model = model
        self._callback.on_train_begin(self._arguments, self._state, self._control, model=model)

    def log(self, step: int, epoch: float, figures: Mapping[str, float]) -> None:
        """See Sink."""
        self._state.global_step, self._state.epoch = step, epoch
        told = {**figures, "epoch": epoch}
        self._state.log_history.append({**told, "step": step})
        self._callback.on_log(self._arguments, self._state, self._control, logs=told, model=self._model)

    def end(self) -> None:
        """See Sink."""
        self._callback.on_train_end(self._arguments, self._state, self._control, model=self._model)


def make_trackers(settings: Settings) -> tuple[Sink, ...]:
    """The sinks that --report_to names. Raises ConfigError for an unknown one, and for one whose package is missing."""
    wanted = names_in(settings.report_to)
    if wanted in ((), ("none",)):
        return ()
    names = tuple(get_available_reporting_integrations()) if wanted == ("all",) else wanted
    return tuple(_tracker(name, settings) for name in names)


def _tracker(name: str, settings: Settings) -> Tracker:
    try:
        (kind,) = get_reporting_integration_callbacks([name])
        return Tracker(name, kind(), settings)
    except ValueError as err:
        raise ConfigError(f"--report_to names {name}: {err} Give one of them, none, or all that are installed") from err
    except (RuntimeError, ImportError) as err:
        raise ConfigError(
            f"--report_to names {name}, which cannot be used: {err} Install its package, or leave it out"
        ) from err


def _arguments(settings: Settings, total_steps: int) -> TrainingArguments:
    return _Arguments(
        output_dir=str(settings.output_dir),
        run_name=settings.job,
        report_to=list(names_in(settings.report_to)),
        max_steps=total_steps,
        per_device_train_batch_size=settings.per_device_train_batch_size,
        gradient_accumulation_steps=settings.gradient_accumulation_steps,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        logging_steps=settings.logging_steps,
        seed=settings.seed,
        use_cpu=True,
    )
