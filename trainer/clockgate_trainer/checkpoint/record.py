"""A decision of the gate, as a manifest tells it. Pure."""

from collections.abc import Mapping

from clockgate_trainer import __version__
from clockgate_trainer.checkpoint.files import FileDigest
from clockgate_trainer.checkpoint.manifest import Manifest, RankReading
from clockgate_trainer.checkpoint.state import TrainState
from clockgate_trainer.gate.gate import reason_names
from clockgate_trainer.gate.model import ABSENT, Decision, Row, SaveVerdict, StepVerdict


def make_manifest(
    state: TrainState, files: Mapping[str, FileDigest], adapter_sha256: str, decision: Decision, wall_ns: int
) -> Manifest:
    """The manifest of a checkpoint of `state` under `decision`; `wall_ns` is rank 0's CLOCK_REALTIME at the save."""
    return Manifest(
        step=state.step,
        world_size=state.world_size,
        files=dict(sorted(files.items())),
        adapter_sha256=adapter_sha256,
        agreed_time=None,
        agreed_time_absent_because=_absence(decision),
        unverified_wall_ns=wall_ns,
        cluster_bound_ns=decision.cluster_bound_ns,
        bound_basis=decision.bound_basis,
        readings=tuple(_reading(rank, row) for rank, row in enumerate(decision.rows)),
        created_by=f"clockgate_trainer {__version__}",
    )


def _absence(decision: Decision) -> str:
    if decision.save_verdict is SaveVerdict.SAVE:
        return "the ranks did not wait for one time; unverified_wall_ns is rank 0's own clock"
    causes = ", ".join(reason_names(decision.reasons)) or "no reason given"
    return f"the ranks voted {decision.save_verdict.name} ({causes}); unverified_wall_ns is rank 0's own clock"


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
