"""Saving a checkpoint: all ranks take part, writers write, and either all ranks believe in it or none does.

    1  vote SAVE     is the adapter the same on all ranks?
    2  exchange      each rank's own state goes to the writers
    3                each writer writes the whole checkpoint under a hidden name, on disk
    4  vote COMMIT   did that work, and is it the same everywhere?
    5                each writer gives it its name, old checkpoints leave
    6  vote COMMIT   did that work?

A rank that is lost at any point leaves at worst a hidden folder behind; the newest checkpoint stands. Where all ranks
share the run folder rank 0 is the only writer. With --async_save step 3 is done by a thread, and 4 to 6 follow
between later steps.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from clockgate_trainer.checkpoint.agreed_time import agree_on_time
from clockgate_trainer.checkpoint.best import Score
from clockgate_trainer.checkpoint.digest import digest_int64
from clockgate_trainer.checkpoint.draft import Draft, Order, drop_draft, publish_draft, write_draft
from clockgate_trainer.checkpoint.layout import checkpoint_path
from clockgate_trainer.checkpoint.manifest import AdapterRepair
from clockgate_trainer.checkpoint.record import Circumstances
from clockgate_trainer.checkpoint.stage import WriteAdapter
from clockgate_trainer.checkpoint.state import TrainState
from clockgate_trainer.checkpoint.store import OnEvent, SaveResult, Store
from clockgate_trainer.gate.clocks import mono_ns
from clockgate_trainer.gate.model import ABSENT, Decision, Flags, Kind

__all__ = ["Exchange", "OnEvent", "SaveGate", "SaveResult", "Store", "close_save", "odd_ranks", "open_save",
           "save_checkpoint"]  # fmt: skip

Exchange = Callable[[object], Sequence[object] | None]


class SaveGate(Protocol):
    """What saving asks of the gate."""

    def agree(
        self, kind: Kind, step: int, *, content_digest: int = ABSENT, flags: Flags = Flags.NONE, extra_s: float = 0.0
    ) -> Decision:
        """Vote with all ranks on `kind`; waits `extra_s` longer for them than for a vote on a step."""


@dataclass(frozen=True)
class _Own:
    """What one rank sends to the writers."""

    adapter_sha256: str
    rank_state: Mapping[str, object]


def save_checkpoint(
    store: Store,
    gate: SaveGate,
    decision: Decision,
    state: TrainState,
    *,
    write_adapter: WriteAdapter,
    adapter_sha256: str,
    exchange: Exchange,
    score: Score | None = None,
    adapter_repair: AdapterRepair | None = None,
) -> SaveResult:
    """Save `state` as checkpoint-N of `store`. A collective: every rank calls it at the same step.

    `decision` is the one that the save rests on; what ranks said of their clocks in it goes into the manifest.
    `write_adapter` puts the adapter's files into a folder, on writers only. `exchange` gathers one object of each rank
    at every writer, in the order of ranks, and may return None elsewhere. `score` is what best.json goes by. A disk
    that cannot be written is a result, not an error. Raises what the gate and `exchange` raise when a rank is lost.
    """
    order = open_save(
        store,
        gate,
        decision,
        state,
        write_adapter=write_adapter,
        adapter_sha256=adapter_sha256,
        exchange=exchange,
        score=score,
        adapter_repair=adapter_repair,
    )
    return order if isinstance(order, SaveResult) else close_save(gate, order, write_draft(order))


def open_save(
    store: Store,
    gate: SaveGate,
    decision: Decision,
    state: TrainState,
    *,
    write_adapter: WriteAdapter,
    adapter_sha256: str,
    exchange: Exchange,
    score: Score | None = None,
    adapter_repair: AdapterRepair | None = None,
) -> Order | SaveResult:
    """The first half of `save_checkpoint`: vote SAVE and exchange. A collective.

    Returns what is to be written (by `write_draft`, from any thread), or the result when adapters differ.
    """
    voted = gate.agree(Kind.SAVE, state.step, content_digest=digest_int64(adapter_sha256))
    timing = agree_on_time(decision, voted)
    # Counted from after the vote, so from later than the stamp in its row.
    due_mono_ns = mono_ns() + timing.wait_ns
    digests = tuple(row.content_digest for row in voted.rows)
    odd = odd_ranks(digests)
    if odd:
        return _refuse(store, state.step, odd, _source_rank(odd, len(digests)))
    gathered = exchange(_Own(adapter_sha256, state.rank_state))
    everyone = () if gathered is None else _own_states(gathered, store.world_size)
    return Order(
        store=store,
        state=state,
        rank_states=tuple(own.rank_state for own in everyone),
        adapter_sha256=adapter_sha256,
        write_adapter=write_adapter,
        circumstances=Circumstances(decision, timing, adapter_repair),
        due_mono_ns=due_mono_ns,
        score=score,
        problem=_unequal(everyone),
    )


def close_save(gate: SaveGate, order: Order, draft: Draft) -> SaveResult:
    """The second half of `save_checkpoint`: vote COMMIT, give it its name, vote again. A collective."""
    store, step = order.store, order.state.step
    failure = _vote_on(store, gate, step, draft.content, draft.problem)
    if failure is not None:
        drop_draft(order, draft)
        return failure
    failure = _vote_on(store, gate, step, draft.content, publish_draft(order, draft))
    if failure is not None:
        drop_draft(order, draft)
        return failure
    path = checkpoint_path(store.output_dir, step)
    store.on_event("checkpoint_saved", {"step": step, "path": str(path)})
    return SaveResult(path, saved=True, reason="all ranks agree")


def odd_ranks(digests: Sequence[int]) -> tuple[int, ...]:
    """The ranks outside the majority; all of them when there is no majority; none when all are equal. Pure."""
    usual, votes = Counter(digests).most_common(1)[0]
    if 2 * votes <= len(digests):
        return tuple(range(len(digests)))
    return tuple(rank for rank, digest in enumerate(digests) if digest != usual)


def _source_rank(odd: Sequence[int], world_size: int) -> int:
    """Whose adapter the others can be given: rank 0's, unless a majority of ranks has another one."""
    return next((rank for rank in range(world_size) if rank not in odd), 0)


def _refuse(store: Store, step: int, odd: tuple[int, ...], source_rank: int) -> SaveResult:
    reason = (
        f"the adapters of the ranks differ after step {step} ({_ranks(odd)}): nothing is saved; look for a faulty "
        "device at these ranks"
    )
    store.on_event("checkpoint_refused", {"level": "CRITICAL", "step": step, "ranks": list(odd), "detail": reason})
    return SaveResult(None, saved=False, reason=reason, ranks=odd, diverged=True, source_rank=source_rank)


def _own_states(gathered: Sequence[object], world_size: int) -> tuple[_Own, ...]:
    everyone = tuple(own for own in gathered if isinstance(own, _Own))
    if len(everyone) != world_size:
        raise RuntimeError(f"exchange gave {len(everyone)} states, wanted one of each of {world_size} ranks")
    return everyone


def _unequal(everyone: Sequence[_Own]) -> str | None:
    """What the full hashes say, of which the vote carries the first 8 bytes."""
    adapters = {own.adapter_sha256 for own in everyone}
    return f"the ranks sent {len(adapters)} different adapters" if len(adapters) > 1 else None


def _vote_on(store: Store, gate: SaveGate, step: int, content: str | None, problem: str | None) -> SaveResult | None:
    """All ranks hear whether any has a problem, and whether all writers wrote the same: None, or the common result."""
    flags = Flags.NONE if problem is None else Flags.SAVE_FAILED
    digest = ABSENT if content is None else digest_int64(content)
    decision = gate.agree(Kind.COMMIT, step, content_digest=digest, flags=flags, extra_s=store.write_grace_s)
    ranks = tuple(rank for rank, row in enumerate(decision.rows) if row.flags & Flags.SAVE_FAILED)
    if ranks:
        why = problem or f"{_ranks(ranks)} could not write it and says why in its log"
    else:
        odd = odd_ranks(tuple(decision.rows[writer].content_digest for writer in store.writers))
        if not odd:
            return None
        ranks = tuple(store.writers[place] for place in odd)
        why = f"{_ranks(ranks)} wrote another optimizer state or other states of ranks than the rest"
    reason = f"no checkpoint of step {step}: {why}; the one before it stands, and the next save tries again"
    store.on_event("checkpoint_failed", {"level": "ERROR", "step": step, "ranks": list(ranks), "detail": reason})
    return SaveResult(None, saved=False, reason=reason, ranks=ranks)


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
