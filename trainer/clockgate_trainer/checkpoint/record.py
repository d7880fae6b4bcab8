"""What ranks said of their clocks and what a save found, as a manifest tells it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from clockgate_trainer import __version__
from clockgate_trainer.checkpoint.agreed_time import Timing, disruptions
from clockgate_trainer.checkpoint.files import FileDigest
from clockgate_trainer.checkpoint.manifest import AdapterRepair, Manifest, RankReading
from clockgate_trainer.checkpoint.state import TrainState
from clockgate_trainer.gate.gate import reason_names
from clockgate_trainer.gate.model import ABSENT, Decision, Row, SaveVerdict, StepVerdict


@dataclass(frozen=True)
class Circumstances:
    """Under which a save happens: what ranks said of their clocks, the time, and a repair of the adapters before it."""

    decision: Decision
    timing: Timing
    adapter_repair: AdapterRepair | None = None


def make_manifest(
    state: TrainState,
    files: Mapping[str, FileDigest],
    adapter_sha256: str,
    circumstances: Circumstances,
    epochs_before: Mapping[int, int],
) -> Manifest:
    """The manifest of a checkpoint of `state`; `epochs_before` is made by `last_epochs`."""
    decision, timing = circumstances.decision, circumstances.timing
    return Manifest(
        step=state.step,
        world_size=state.world_size,
        files=dict(sorted(files.items())),
        adapter_sha256=adapter_sha256,
        agreed_time=timing.agreed,
        agreed_time_absent_because=timing.absent_because,
        unverified_wall_ns=timing.wall_ns if timing.agreed is None else None,
        cluster_bound_ns=decision.cluster_bound_ns,
        bound_basis=decision.bound_basis,
        readings=tuple(_reading(rank, row) for rank, row in enumerate(decision.rows)),
        created_by=f"clockgate_trainer {__version__}",
        disruptions=disruptions(epochs_before, decision.rows),
        adapter_repair=circumstances.adapter_repair,
    )


def last_epochs(earlier: Iterable[Manifest], world_size: int) -> dict[int, int]:
    """Each rank's epoch at the newest of the `earlier` checkpoints, newest first, that knew it.

    Only those of as many ranks count: else rank numbers do not name the same clocks.
    """
    epochs: dict[int, int] = {}
    for manifest in earlier:
        if manifest.world_size == world_size:
            for reading in manifest.readings:
                if reading.epoch is not None:
                    epochs.setdefault(reading.rank, reading.epoch)
    return epochs


def _reading(rank: int, row: Row) -> RankReading:
    return RankReading(
        rank=rank,
        step_verdict=StepVerdict(row.step_verdict).name,
        save_verdict=SaveVerdict(row.save_verdict).name,
        reasons=tuple(reason_names(row.reasons)),
        relative_bound_ns=_known(row.relative_bound_ns),
        utc_bound_ns=_known(row.utc_bound_ns),
        reference_hash=_known(row.reference_hash),
        epoch=_known(row.epoch),
    )


def _known(value: int) -> int | None:
    return None if value == ABSENT else value
