"""Saving a checkpoint: all ranks take part, rank 0 writes, and either all ranks believe in it or none does.

    1  vote SAVE     is the adapter the same on all ranks?
    2  exchange      each rank's own state goes to rank 0
    3                rank 0 writes the whole checkpoint under a hidden name, on disk
    4  vote COMMIT   did that work?
    5                rank 0 gives it its name, old checkpoints leave
    6  vote COMMIT   did that work?

A rank that is lost at any point leaves at worst a hidden folder behind; the newest checkpoint stands. The run folder
is shared: rank 0's copy is the only one.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from safetensors import SafetensorError

from clockgate_trainer.checkpoint.digest import digest_int64
from clockgate_trainer.checkpoint.files import HOST, FileDigest, Files
from clockgate_trainer.checkpoint.layout import checkpoint_path, hidden_path
from clockgate_trainer.checkpoint.manifest import Manifest
from clockgate_trainer.checkpoint.publish import publish, rotate, same_checkpoint
from clockgate_trainer.checkpoint.record import make_manifest
from clockgate_trainer.checkpoint.stage import Staged, WriteAdapter, stage
from clockgate_trainer.checkpoint.state import TrainState
from clockgate_trainer.gate.model import ABSENT, Decision, Flags, Kind

Exchange = Callable[[object], list[object] | None]
OnEvent = Callable[[str, Mapping[str, object]], None]


class SaveGate(Protocol):
    """What saving asks of the gate."""

    def agree(
        self, kind: Kind, step: int, *, content_digest: int = ABSENT, flags: Flags = Flags.NONE, extra_s: float = 0.0
    ) -> Decision:
        """Vote with all ranks on `kind`; waits `extra_s` longer for them than for a vote on a step."""


def _tell_nobody(event: str, fields: Mapping[str, object]) -> None:
    pass


@dataclass(frozen=True)
class Store:
    """Where one rank's checkpoints are, shared by all ranks, and how many are kept (0: all).

    `on_event(name, fields)` hears of every save. While rank 0 writes, the others wait `write_grace_s` longer than for
    any other vote: 10 minutes hold some 60 GB on a disk of 100 MB/s.
    """

    output_dir: Path
    rank: int
    world_size: int
    save_total_limit: int
    files: Files = HOST
    on_event: OnEvent = _tell_nobody
    write_grace_s: float = 600.0


@dataclass(frozen=True)
class SaveResult:
    """Equal on all ranks but for the wording of `reason`.

    `path` is the checkpoint when `saved`; else `reason` says why there is none and `ranks` at whose place.
    """

    path: Path | None
    saved: bool
    reason: str
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Own:
    """What one rank sends to rank 0."""

    adapter_sha256: str
    rank_state: Mapping[str, object]


@dataclass(frozen=True)
class _Draft:
    """Rank 0's work before the vote: `staged` waits for its name, None when an equal checkpoint has it already."""

    staged: Staged | None = None
    problem: str | None = None

    @property
    def digest(self) -> int:
        """For the vote's row."""
        return ABSENT if self.staged is None else digest_int64(self.staged.manifest_sha256)


def save_checkpoint(
    store: Store,
    gate: SaveGate,
    decision: Decision,
    state: TrainState,
    *,
    write_adapter: WriteAdapter,
    adapter_sha256: str,
    exchange: Exchange,
) -> SaveResult:
    """Save `state` as checkpoint-N of `store`. A collective: every rank calls it at the same step.

    `decision` is the one that the save rests on; what ranks said of their clocks in it goes into the manifest.
    `write_adapter` puts the adapter's files into a folder, on rank 0 only. `exchange` gathers one object of each rank
    at rank 0, in the order of ranks, and returns None elsewhere. A disk that cannot be written is a result, not an
    error. Raises what the gate and `exchange` raise when a rank is lost.
    """
    voted = gate.agree(Kind.SAVE, state.step, content_digest=digest_int64(adapter_sha256))
    odd = odd_ranks(tuple(row.content_digest for row in voted.rows))
    if odd:
        return _refuse(store, state.step, odd)
    gathered = exchange(_Own(adapter_sha256, state.rank_state))

    def describe(files: Mapping[str, FileDigest]) -> Manifest:
        return make_manifest(state, files, adapter_sha256, decision, voted.rows[0].sent_wall_ns)

    draft = (
        _Draft()
        if gathered is None
        else _draft(store, state, _own_states(gathered, store.world_size), write_adapter, describe)
    )
    failure = _vote_on(store, gate, state.step, draft.digest, draft.problem)
    if failure is not None:
        _drop(store, draft)
        return failure
    problem = None if gathered is None else _publish(store, state.step, draft)
    failure = _vote_on(store, gate, state.step, draft.digest, problem)
    if failure is not None:
        _drop(store, draft)
        return failure
    path = checkpoint_path(store.output_dir, state.step)
    store.on_event("checkpoint_saved", {"step": state.step, "path": str(path)})
    return SaveResult(path, saved=True, reason="all ranks agree")


def odd_ranks(digests: Sequence[int]) -> tuple[int, ...]:
    """The ranks outside the majority; all of them when there is no majority; none when all are equal. Pure."""
    usual, votes = Counter(digests).most_common(1)[0]
    if 2 * votes <= len(digests):
        return tuple(range(len(digests)))
    return tuple(rank for rank, digest in enumerate(digests) if digest != usual)


def _refuse(store: Store, step: int, odd: tuple[int, ...]) -> SaveResult:
    who = f"rank{'s' if len(odd) > 1 else ''} {', '.join(map(str, odd))}"
    reason = (
        f"the adapters of the ranks differ after step {step} ({who}): nothing is saved; stop and resume from the "
        "newest checkpoint, and look for a faulty device at these ranks"
    )
    store.on_event("checkpoint_refused", {"level": "CRITICAL", "step": step, "ranks": list(odd), "detail": reason})
    return SaveResult(None, saved=False, reason=reason, ranks=odd)


def _own_states(gathered: Sequence[object], world_size: int) -> tuple[_Own, ...]:
    everyone = tuple(own for own in gathered if isinstance(own, _Own))
    if len(everyone) != world_size:
        raise RuntimeError(f"exchange gave {len(everyone)} states, wanted one of each of {world_size} ranks")
    return everyone


def _draft(
    store: Store,
    state: TrainState,
    everyone: Sequence[_Own],
    write_adapter: WriteAdapter,
    describe: Callable[[Mapping[str, FileDigest]], Manifest],
) -> _Draft:
    """Rank 0: a complete checkpoint under a hidden name, or the sentence that says why there is none."""
    target = checkpoint_path(store.output_dir, state.step)
    adapters = {own.adapter_sha256 for own in everyone}
    if len(adapters) > 1:
        return _Draft(problem=f"the ranks sent {len(adapters)} different adapters")
    if same_checkpoint(store.files, target, state.step, state.world_size, *adapters):
        return _Draft()
    folder = hidden_path(target, "staging")
    try:
        rank_states = [own.rank_state for own in everyone]
        staged = stage(store.files, folder, state, rank_states, write_adapter=write_adapter, describe=describe)
    except (OSError, SafetensorError) as error:
        _remove(store, folder)
        return _Draft(problem=_cause(error))
    return _Draft(staged)


def _publish(store: Store, step: int, draft: _Draft) -> str | None:
    """Rank 0: give the checkpoint its name and let old ones go; the sentence that says why it has no name, or None."""
    target = checkpoint_path(store.output_dir, step)
    if draft.staged is not None:
        try:
            replaced = publish(store.files, draft.staged.folder, target)
        except OSError as error:
            return _cause(error)
        if replaced is not None:
            _remove(store, replaced)
    try:
        gone = rotate(store.files, store.output_dir, store.save_total_limit, target)
    except OSError as error:
        store.on_event("checkpoint_not_removed", {"level": "WARNING", "step": step, "detail": _cause(error)})
    else:
        if gone:
            store.on_event("checkpoints_removed", {"step": step, "paths": [str(path) for path in gone]})
    return None


def _vote_on(store: Store, gate: SaveGate, step: int, digest: int, problem: str | None) -> SaveResult | None:
    """All ranks hear whether any has a problem: None, or the result that all return."""
    flags = Flags.NONE if problem is None else Flags.SAVE_FAILED
    decision = gate.agree(Kind.COMMIT, step, content_digest=digest, flags=flags, extra_s=store.write_grace_s)
    ranks = tuple(rank for rank, row in enumerate(decision.rows) if row.flags & Flags.SAVE_FAILED)
    if not ranks:
        return None
    cause = problem or f"rank {', '.join(map(str, ranks))} could not write it and says why in its log"
    reason = f"no checkpoint of step {step}: {cause}; the one before it stands, and the next save tries again"
    store.on_event("checkpoint_failed", {"level": "ERROR", "step": step, "ranks": list(ranks), "detail": reason})
    return SaveResult(None, saved=False, reason=reason, ranks=ranks)


def _drop(store: Store, draft: _Draft) -> None:
    if draft.staged is not None:
        _remove(store, draft.staged.folder)


def _remove(store: Store, folder: Path) -> None:
    """Remove a hidden folder as far as the disk permits: what stays is removed at the next start."""
    try:
        store.files.remove_tree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        store.on_event("checkpoint_not_removed", {"level": "WARNING", "path": str(folder), "detail": _cause(error)})


def _cause(error: Exception) -> str:
    if isinstance(error, OSError):
        place = f" at {error.filename}" if error.filename else ""
        return f"{error.strerror or error} (errno {error.errno}){place}"
    return str(error)
