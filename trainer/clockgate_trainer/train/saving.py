"""The run's state to and from checkpoints: what the room `checkpoint` does with folders, for this model and optimizer.

Adapter, optimizer, schedule, row cursor and every rank's random generators: all that makes a resumed run go on as if
it had never stopped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file

from clockgate_trainer.checkpoint.digest import digest_tensors
from clockgate_trainer.checkpoint.files import HOST
from clockgate_trainer.checkpoint.layout import MANIFEST_FILE, step_in_name
from clockgate_trainer.checkpoint.manifest import Manifest
from clockgate_trainer.checkpoint.resume import Found, clean_staging, find_resume
from clockgate_trainer.checkpoint.save import Exchange, SaveResult, Store, save_checkpoint
from clockgate_trainer.checkpoint.state import TrainState
from clockgate_trainer.checkpoint.verify import read_manifest
from clockgate_trainer.data.order import Cursor
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.gate.gate import ClockGate
from clockgate_trainer.gate.model import Decision
from clockgate_trainer.train import rng
from clockgate_trainer.train.report import Standing

ADAPTER_FILE = "adapter_model.safetensors"
# Flags that a resumed run must share with the run that it continues. The others (where and how often to save and log,
# and everything about clocks) do not change a weight.
_DECISIVE = (
    "model_name_or_path", "bits", "quant_type", "double_quant", "bf16", "lora_r", "lora_alpha", "lora_dropout",
    "lora_modules", "per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate",
    "lr_scheduler_type", "optim", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "seed",
)  # fmt: skip


@dataclass(frozen=True)
class Position:
    """A run between two steps, as one rank sees it: `step` are done, `cursor` is next, `random` is drawn from."""

    step: int
    cursor: Cursor
    random: rng.State


def identity(settings: Settings, total_steps: int, fingerprint: str) -> dict[str, object]:
    """What must be equal for a resumed run to continue the old one bit for bit."""
    chosen: dict[str, object] = {name: getattr(settings, name) for name in _DECISIVE}
    chosen |= {"data_seed": settings.order_seed, "data": fingerprint}
    if settings.lr_scheduler_type != "constant":
        # The learning rate of a step depends on how many there will be.
        chosen |= {"max_steps": total_steps, "warmup_ratio": settings.warmup_ratio}
        chosen |= {"warmup_steps": settings.warmup_steps}
    return chosen


def find(settings: Settings) -> Found | None:
    """The checkpoint to go on from, by --resume_from_checkpoint; for rank 0, which tells the others.

    Removes what a crash left half written in the run folder. A path may be a checkpoint or a run folder. Raises
    ConfigError.
    """
    spec, folder = settings.resume_from_checkpoint, settings.output_dir
    clean_staging(folder)
    older = _checkpoints(folder)
    if spec == "none" and older:
        raise ConfigError(
            f"--resume_from_checkpoint is none and {folder} holds {older[-1].name} of an earlier run, which this run "
            "would replace: give another --output_dir, or resume with auto"
        )
    if spec not in ("auto", "none") and _is_run_folder(Path(spec)):
        return find_resume(Path(spec), "auto")
    return find_resume(folder, spec)


def load_adapter(model: Any, checkpoint: Path) -> None:
    """Put the adapter of a verified checkpoint into `model`. Raises ConfigError when it is not exactly that one."""
    manifest = read_manifest(checkpoint, HOST)
    try:
        found = load_file(checkpoint / ADAPTER_FILE)
        set_peft_model_state_dict(model, found)
    except (OSError, SafetensorError, RuntimeError) as err:
        raise ConfigError(f"the adapter in {checkpoint} cannot be loaded: {err}. Resume from another one") from err
    digest = digest_tensors(trained_tensors(model))
    if not isinstance(manifest, Manifest) or digest != manifest.adapter_sha256:
        raise ConfigError(
            f"the adapter in {checkpoint} does not fill this model exactly: the model or its --lora_ flags are others "
            "than when it was saved. Give the old ones, or another --output_dir"
        )


def trained_tensors(model: Any) -> dict[str, torch.Tensor]:
    """The weights that training changes, by name."""
    return {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}


class Saver:
    """Saves this rank's part of a checkpoint; all ranks call it at the same steps.

    `exchange` is a collective that brings one object of each rank to rank 0. `identity` is that of the run.
    `saved_step` is the newest step that this run saved or went on from; 0 when there is none.
    """

    def __init__(
        self,
        store: Store,
        gate: ClockGate,
        exchange: Exchange,
        standing: Standing,
        *,
        model: Any,
        optimizer: torch.optim.Optimizer,
        scheduler: torch.optim.lr_scheduler.LRScheduler,
        identity: Mapping[str, object],
    ) -> None:
        self._store = store
        self._gate = gate
        self._exchange = exchange
        self._standing = standing
        self._model = model
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._identity = identity
        self.saved_step = 0

    def save(self, position: Position, decision: Decision) -> SaveResult:
        """Save at `position`; `decision` is what the cluster said of its clocks. A collective.

        A failure is a result, equal on all ranks. Raises PeerLostError and DesyncError.
        """
        state = TrainState(
            step=position.step,
            cursor={"epoch": position.cursor.epoch, "row": position.cursor.row},
            world_size=self._store.world_size,
            optimizer_state=self._optimizer.state_dict(),
            scheduler_state=self._scheduler.state_dict(),
            rank_state=position.random,
            settings=self._identity,
        )
        digest = digest_tensors(trained_tensors(self._model))
        result = save_checkpoint(
            self._store,
            self._gate,
            decision,
            state,
            write_adapter=self._write_adapter,
            adapter_sha256=digest,
            exchange=self._exchange,
        )
        if result.saved:
            self.saved_step = position.step
            self._standing.checkpoint = result.path
        return result

    def restore(self, state: TrainState) -> Position:
        """Put optimizer and schedule back to a checkpoint's state; returns the position to go on from."""
        self._optimizer.load_state_dict(dict(state.optimizer_state))
        self._scheduler.load_state_dict(dict(state.scheduler_state))
        self.saved_step = state.step
        return Position(state.step, Cursor(state.cursor["epoch"], state.cursor["row"]), dict(state.rank_state))

    def _write_adapter(self, folder: Path) -> None:
        # The embedding is never trained; asking peft to find that out makes it look for the base model on the hub.
        self._model.save_pretrained(folder, save_embedding_layers=False)


def _is_run_folder(path: Path) -> bool:
    """Whether `path` is no checkpoint and holds some. One that cannot be looked into is none: verifying tells why."""
    try:
        return not (path / MANIFEST_FILE).exists() and bool(_checkpoints(path))
    except OSError:
        return False


def _checkpoints(folder: Path) -> list[Path]:
    """Folders named as checkpoints, by step."""
    named = ((step_in_name(path), path) for path in HOST.list_folders(folder))
    return [path for step, path in sorted((step, path) for step, path in named if step is not None)]
