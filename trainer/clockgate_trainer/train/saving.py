"""The run's state to and from checkpoints: what the room `checkpoint` does with folders, for this model and optimizer.

Adapter, optimizer, schedule, row cursor and every rank's random generators: all that makes a resumed run go on as if
it had never stopped.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from clockgate_trainer.checkpoint.background import Background, copied
from clockgate_trainer.checkpoint.best import Score
from clockgate_trainer.checkpoint.digest import digest_tensors
from clockgate_trainer.checkpoint.draft import write_draft
from clockgate_trainer.checkpoint.files import HOST
from clockgate_trainer.checkpoint.layout import MANIFEST_FILE, step_in_name
from clockgate_trainer.checkpoint.manifest import AdapterRepair
from clockgate_trainer.checkpoint.resume import Found, clean_staging, find_resume
from clockgate_trainer.checkpoint.save import Exchange, SaveResult, Store, close_save, open_save
from clockgate_trainer.checkpoint.state import TrainState
from clockgate_trainer.checkpoint.transfer import Spread
from clockgate_trainer.data.order import Cursor
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.gate.clocks import mono_ns
from clockgate_trainer.gate.gate import ClockGate
from clockgate_trainer.gate.model import Decision, Flags
from clockgate_trainer.train import rng
from clockgate_trainer.train.report import Standing
from clockgate_trainer.train.trained import Trained, unsound

# Flags that a resumed run must share with the run that it continues. The others (where and how often to save and log,
# and everything about clocks) do not change a weight.
_DECISIVE = (
    "model_name_or_path", "bits", "quant_type", "double_quant", "bf16", "lora_r", "lora_alpha", "lora_dropout",
    "lora_modules", "modules_to_save", "use_rslora", "use_dora", "per_device_train_batch_size",
    "gradient_accumulation_steps", "learning_rate", "lr_scheduler_type", "optim",
    "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "seed",
)  # fmt: skip


@dataclass(frozen=True)
class Position:
    """A run between two steps, as one rank sees it: `step` are done, `cursor` is next, `random` is drawn from.

    `micro_batch` is the rows of the next micro-batches, None for what the flags say.
    """

    step: int
    cursor: Cursor
    random: rng.State
    micro_batch: int | None = None


def identity(settings: Settings, total_steps: int, fingerprint: str) -> dict[str, object]:
    """What must be equal for a resumed run to continue the old one bit for bit."""
    chosen: dict[str, object] = {name: getattr(settings, name) for name in _DECISIVE}
    chosen |= {"data_seed": settings.order_seed, "data": fingerprint, "pack_length": settings.packed_tokens}
    if not settings.packing:
        chosen["group_by_length"] = settings.group_by_length
    # Only when they are set, so that checkpoints of runs that never knew them can be gone on from.
    chosen |= {name: True for name in ("fp16", "full_finetune") if getattr(settings, name)}
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


def _spread_alone(content: bytes | None, source: int, *, keep: bool = True) -> bytes | None:
    """The spread of a rank that is alone."""
    return content


class Saver:
    """Saves this rank's part of a checkpoint; all ranks call it at the same steps.

    `exchange` is a collective that brings one object of each rank to the writers, `spread` one that brings the bytes of
    one rank to all. `identity` is that of the run. With `async_save` periodic saves are written by a thread. Under
    `on_divergence` broadcast, ranks whose adapter differs are given the one of most ranks. A save competes for
    best.json by the mean training loss of the steps before it, when these are at least `score_steps`; with None by the
    score that it is given.
    `saved_step` is the newest step that this run saved or went on from; 0 when there is none.
    """

    def __init__(
        self,
        store: Store,
        gate: ClockGate,
        exchange: Exchange,
        standing: Standing,
        trained: Trained,
        *,
        identity: Mapping[str, object],
        spread: Spread = _spread_alone,
        async_save: bool = False,
        on_divergence: str = "stop",
        score_steps: int | None = 1,
    ) -> None:
        self._store = store
        self._gate = gate
        self._exchange = exchange
        self._standing = standing
        self._trained = trained
        self._identity = identity
        self._spread = spread
        self._background = Background() if async_save else None
        self._opened_step = 0
        self._repairs = on_divergence == "broadcast"
        self._losses = None if score_steps is None else LossWindow(score_steps)
        self.saved_step = 0

    def after_step(self, decision: Decision, loss: float, label_tokens: int) -> None:
        """Take note of a step's loss, and commit a save that all writers have written meanwhile. A collective.

        What ranks have written travels in the rows of a step, so `decision` tells all ranks the same. Raises
        PeerLostError and DesyncError.
        """
        if self._losses is not None:
            self._losses.add(loss, label_tokens)
        if self._background is None or self._background.order is None:
            return
        # A row of the first step after the save began can still speak of the save before it.
        told = {rank for rank, row in enumerate(decision.rows) if row.flags & Flags.SAVE_READY}
        if decision.step > self._opened_step + 1 and told.issuperset(self._store.writers):
            self.drain()
        elif self._store.writes and self._background.written():
            self._gate.request(Flags.SAVE_READY)

    def save(
        self, position: Position, decision: Decision, *, last: bool = False, score: Score | None = None
    ) -> SaveResult:
        """Save at `position`; `decision` is what the cluster said of its clocks, `score` what an evaluation of these
        very weights came to. A collective.

        A `last` save is on disk when this returns; so are all without async_save. The result of one that goes on in
        the background says that it is not saved yet. A failure is a result, equal on all ranks. Raises PeerLostError
        and DesyncError.
        """
        self.drain()
        if self._losses is not None:
            score = self._losses.take()
        result = self._save(position, decision, score, last=last)
        if result.diverged and self._repairs:
            repair = self._repair(position.step, result)
            result = self._save(position, decision, score, last=last, adapter_repair=repair)
        return result

    def drain(self) -> None:
        """Commit the save that is being written, waiting for it; nothing without one. A collective."""
        if self._background is None or self._background.order is None:
            return
        waits, asked_ns = not self._background.written(), mono_ns()
        order, draft = self._background.take()
        if waits:
            waited_ns = mono_ns() - asked_ns
            self._store.on_event("checkpoint_waited_for", {"step": order.state.step, "waited_ns": waited_ns})
        self._note(order.state.step, close_save(self._gate, order, draft))

    def restore(self, state: TrainState) -> Position:
        """Put optimizer and schedule back to a checkpoint's state; returns the position to go on from."""
        self._trained.load_optimizer_state(state.optimizer_state)
        self._trained.scheduler.load_state_dict(dict(state.scheduler_state))
        self.saved_step = state.step
        cursor = Cursor(state.cursor["epoch"], state.cursor["row"])
        return Position(state.step, cursor, dict(state.rank_state), state.cursor.get("micro_batch"))

    def _save(
        self,
        position: Position,
        decision: Decision,
        score: Score | None,
        *,
        last: bool,
        adapter_repair: AdapterRepair | None = None,
    ) -> SaveResult:
        background = None if last else self._background
        weights = self._trained.weights()
        state = TrainState(
            step=position.step,
            cursor={
                "epoch": position.cursor.epoch,
                "row": position.cursor.row,
                **({} if position.micro_batch is None else {"micro_batch": position.micro_batch}),
            },
            world_size=self._store.world_size,
            optimizer_state=self._trained.optimizer_state(),
            scheduler_state=self._trained.scheduler.state_dict(),
            rank_state=position.random,
            settings=self._identity,
        )
        problem, copies = unsound(weights), None
        if background is not None and self._store.writes:
            # Training changes the weights while they are written.
            state, weights = copied(state), copied(weights)
            copies = weights
        order = open_save(
            self._store,
            self._gate,
            decision,
            state,
            write_adapter=lambda folder: self._trained.write(folder, copies),
            adapter_sha256=digest_tensors(weights),
            exchange=self._exchange,
            score=score,
            adapter_repair=adapter_repair,
        )
        if isinstance(order, SaveResult):
            return order
        if problem is not None:
            order, background = replace(order, problem=problem), None
        if background is not None:
            self._opened_step = position.step
            background.start(order)
            return SaveResult(None, saved=False, reason="it is being written")
        return self._note(position.step, close_save(self._gate, order, write_draft(order)))

    def _note(self, step: int, result: SaveResult) -> SaveResult:
        if result.saved:
            self.saved_step = step
            self._standing.checkpoint = result.path
        return result

    def _repair(self, step: int, result: SaveResult) -> AdapterRepair:
        """Give every rank adapter and optimizer state of one. A collective."""
        source = result.source_rank
        repair = AdapterRepair(source, tuple(rank for rank in result.ranks if rank != source))
        adapter = self._trained.weights()
        content = io.BytesIO()
        if self._store.rank == source:
            torch.save({"adapter": copied(adapter), "optimizer": copied(self._trained.optimizer_state())}, content)
        given = self._spread(content.getvalue(), source)
        if self._store.rank != source and given is not None:
            states = torch.load(io.BytesIO(given), map_location="cpu", weights_only=True)
            with torch.no_grad():
                for name, tensor in adapter.items():
                    tensor.copy_(states["adapter"][name])
            self._trained.load_optimizer_state(states["optimizer"])
        told = f"after step {step} rank {source} gave its adapter and optimizer state to all ranks"
        self._store.on_event(
            "adapter_repaired", {"level": "WARNING", "step": step, "ranks": list(repair.ranks), "detail": told}
        )
        return repair


class LossWindow:
    """Mean training loss over label tokens, as a score of the checkpoint at the end of enough steps."""

    def __init__(self, enough_steps: int) -> None:
        self._enough_steps = enough_steps
        self._steps, self._tokens, self._sum = 0, 0, 0.0

    def add(self, loss: float, label_tokens: int) -> None:
        """Take note of a step, whose mean loss over `label_tokens` of all ranks is `loss`."""
        self._steps += 1
        self._tokens += label_tokens
        self._sum += loss * label_tokens

    def take(self) -> Score | None:
        """The score of the steps since the last one; None, and they count for the next, when they are too few."""
        if self._steps < self._enough_steps or not self._tokens:
            return None
        score = Score("train_loss", self._sum / self._tokens)
        self._steps, self._tokens, self._sum = 0, 0, 0.0
        return score


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
