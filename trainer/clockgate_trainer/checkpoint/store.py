"""Where checkpoints go and what becomes of a save, as one rank sees it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from clockgate_trainer.checkpoint.files import HOST, Files

OnEvent = Callable[[str, Mapping[str, object]], None]


def _tell_nobody(event: str, fields: Mapping[str, object]) -> None:
    pass


@dataclass(frozen=True)
class Store:
    """Where one rank's checkpoints are, and how many are kept (0: all).

    `writers` are the ranks that write: rank 0 alone where all ranks share `output_dir`, else the lowest rank of every
    folder. `on_event(name, fields)` hears of every save, with --async_save also from another thread. While the writers
    write, the others wait `write_grace_s` longer than for any other vote: 10 minutes hold some 60 GB on a disk of
    100 MB/s.
    """

    output_dir: Path
    rank: int
    world_size: int
    save_total_limit: int
    files: Files = HOST
    on_event: OnEvent = _tell_nobody
    write_grace_s: float = 600.0
    writers: tuple[int, ...] = (0,)

    @property
    def writes(self) -> bool:
        """Whether this rank writes checkpoints."""
        return self.rank in self.writers


@dataclass(frozen=True)
class SaveResult:
    """Equal on all ranks but for `path`, the same checkpoint in each rank's own folder, and the wording of `reason`.

    `path` is the checkpoint when `saved`; else `reason` says why there is none and `ranks` at whose place. `diverged`
    tells that these ranks have other adapters than the rest, and `source_rank` whose adapter the rest has.
    """

    path: Path | None
    saved: bool
    reason: str
    ranks: tuple[int, ...] = ()
    diverged: bool = False
    source_rank: int = 0
