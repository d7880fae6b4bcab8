"""A writer's own work in a save: the draft under a hidden name, its true name, best.json, and old checkpoints' leave.

Touches the disk and talks to no rank, so it can be done by another thread than the one that trains.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError

from clockgate_trainer.checkpoint.best import Score, beats, point_to, read_best
from clockgate_trainer.checkpoint.files import FileDigest
from clockgate_trainer.checkpoint.layout import checkpoint_path, hidden_path
from clockgate_trainer.checkpoint.manifest import Manifest, content_id
from clockgate_trainer.checkpoint.publish import (
    earlier_manifests,
    publish,
    rotate,
    same_checkpoint,
    whole_manifest,
)
from clockgate_trainer.checkpoint.record import Circumstances, last_epochs, make_manifest
from clockgate_trainer.checkpoint.stage import Staged, WriteAdapter, stage
from clockgate_trainer.checkpoint.state import TrainState
from clockgate_trainer.checkpoint.store import Store
from clockgate_trainer.gate.clocks import mono_ns

_NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class Order:
    """A save that all ranks want, as one of them carries it out.

    `rank_states` holds every rank's own state on a writer and is empty elsewhere. The checkpoint may get its name from
    `due_mono_ns` (CLOCK_MONOTONIC) on. `problem` says why nothing may be written.
    """

    store: Store
    state: TrainState
    rank_states: Sequence[Mapping[str, object]]
    adapter_sha256: str
    write_adapter: WriteAdapter
    circumstances: Circumstances
    due_mono_ns: int
    score: Score | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Draft:
    """A rank's work before the vote.

    `staged` waits for its name, None when an equal checkpoint has it already and on ranks that do not write.
    `content` is the checkpoint's content_id, None without one; `problem` the sentence that says why.
    """

    staged: Staged | None = None
    content: str | None = None
    problem: str | None = None


def write_draft(order: Order) -> Draft:
    """Bring a complete checkpoint to disk under a hidden name and wait out its agreed time; nothing but on writers.

    A disk that cannot be written is a problem in the draft, not an error.
    """
    store, state = order.store, order.state
    if order.problem is not None or not store.writes:
        return Draft(problem=order.problem)
    target = checkpoint_path(store.output_dir, state.step)
    standing = same_checkpoint(store.files, target, state.step, state.world_size, order.adapter_sha256)
    if standing is not None:
        return Draft(content=content_id(standing))
    manifests: list[Manifest] = []

    def describe(files: Mapping[str, FileDigest]) -> Manifest:
        earlier = earlier_manifests(store.files, store.output_dir, state.step)
        epochs = last_epochs(earlier, state.world_size)
        manifests.append(make_manifest(state, files, order.adapter_sha256, order.circumstances, epochs))
        return manifests[0]

    folder = hidden_path(target, "staging")
    try:
        staged = stage(
            store.files, folder, state, order.rank_states, write_adapter=order.write_adapter, describe=describe
        )
    except (OSError, SafetensorError) as error:
        remove(store, folder)
        return Draft(problem=cause(error))
    time.sleep(max(0, order.due_mono_ns - mono_ns()) / _NS_PER_S)
    return Draft(staged, content_id(manifests[0]))


def publish_draft(order: Order, draft: Draft) -> str | None:
    """Give the checkpoint its name and let old ones go; the sentence that says why it has no name, or None."""
    store, step = order.store, order.state.step
    if not store.writes:
        return None
    target = checkpoint_path(store.output_dir, step)
    if draft.staged is not None:
        try:
            replaced = publish(store.files, draft.staged.folder, target)
        except OSError as error:
            return cause(error)
        if replaced is not None:
            remove(store, replaced)
    try:
        _keep_score(order, target)
        gone = rotate(store.files, store.output_dir, store.save_total_limit, target)
    except OSError as error:
        store.on_event("checkpoint_not_removed", {"level": "WARNING", "step": step, "detail": cause(error)})
    else:
        if gone:
            store.on_event("checkpoints_removed", {"step": step, "paths": [str(path) for path in gone]})
    return None


def drop_draft(order: Order, draft: Draft) -> None:
    """Remove what was written for nothing."""
    if draft.staged is not None:
        remove(order.store, draft.staged.folder)


def remove(store: Store, folder: Path) -> None:
    """Remove a hidden folder as far as the disk permits: what stays is removed at the next start."""
    try:
        store.files.remove_tree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        store.on_event("checkpoint_not_removed", {"level": "WARNING", "path": str(folder), "detail": cause(error)})


def cause(error: Exception) -> str:
    """An error of the disk in one line, with its number and place."""
    if isinstance(error, OSError):
        place = f" at {error.filename}" if error.filename else ""
        return f"{error.strerror or error} (errno {error.errno}){place}"
    return str(error)


def _keep_score(order: Order, target: Path) -> None:
    """Point best.json at `target` when its score is the best one of those that stand. Raises OSError."""
    store, score = order.store, order.score
    if score is None:
        return
    holder = read_best(store.files, store.output_dir)
    if holder is not None and whole_manifest(store.files, store.output_dir / holder.checkpoint) is None:
        holder = None
    if beats(score, holder):
        point_to(store.files, target, order.state.step, score)
        told = {"step": order.state.step, "path": str(target), "metric": score.metric, "value": score.value}
        store.on_event("best_checkpoint", told)
