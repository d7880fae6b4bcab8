"""One rank of the checkpoint's process test: `python -m support.save_rank FOLDER` under torchrun's environment.

Saves under a real vote and a real gather, with everything that can go wrong on one rank, and at last loses rank 0
while it writes. Rank 1 writes what it saw to `seen-1.json` at the end, rank 0 before it is lost to `seen-0.json`.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch.distributed as dist
from clockgate_trainer.checkpoint.digest import digest_tensors
from clockgate_trainer.checkpoint.files import HOST, Files, HostFiles
from clockgate_trainer.checkpoint.resume import load
from clockgate_trainer.checkpoint.save import Store, save_checkpoint
from clockgate_trainer.errors import PeerLostError
from clockgate_trainer.gate.exit import leave
from clockgate_trainer.gate.gate import ClockGate, GateSettings
from clockgate_trainer.gate.policy import OnUnknown
from clockgate_trainer.gate.sidecar import NullSidecar
from clockgate_trainer.gate.vote import open_vote
from support.checkpoints import LIMITS, make_adapter, make_decision, make_row, make_state, write_adapter


class NoRename(HostFiles):
    """A disk on which nothing gets a new name."""

    def rename(self, source: Path, target: Path) -> None:
        raise OSError(5, "Input/output error", str(target))


class NoRoom(HostFiles):
    """A disk that is full."""

    def write(self, path: Path, content: bytes | memoryview) -> None:
        raise OSError(28, "No space left on device", str(path))


class Rank:
    """A rank with a gate but no clock daemon."""

    def __init__(self, folder: Path) -> None:
        dist.init_process_group("gloo")
        self.number = dist.get_rank()
        self.folder = folder
        self.seen: dict[str, object] = {}
        settings = GateSettings(LIMITS, OnUnknown.WARN, vote_timeout_s=20.0)
        self.gate = ClockGate(open_vote(60), NullSidecar(), settings, lambda name, fields: None)

    def exchange(self, own: object) -> list[object] | None:
        """Gather at rank 0, as the trainer does."""
        gathered: list[object] | None = [None, None] if self.number == 0 else None
        dist.gather_object(own, gathered)
        return gathered

    def save(self, name: str, step: int, value: float, files: Files = HOST, *, die: bool = False) -> None:
        store = Store(self.folder / "run", self.number, 2, 0, files, write_grace_s=5.0)

        def write(folder: Path) -> None:
            write_adapter(value)(folder)
            if die:
                self.write()
                os.kill(os.getpid(), signal.SIGKILL)

        result = save_checkpoint(
            store,
            self.gate,
            make_decision(step, make_row(step=step), make_row(step=step)),
            make_state(step, self.number, world_size=2),
            write_adapter=write,
            adapter_sha256=digest_tensors(make_adapter(value)),
            exchange=self.exchange,
        )
        self.seen[name] = {"saved": result.saved, "ranks": result.ranks, "reason": result.reason}

    def write(self) -> None:
        (self.folder / f"seen-{self.number}.json").write_text(json.dumps(self.seen), encoding="utf-8")


def main(folder: Path) -> None:
    """See the module."""
    rank = Rank(folder)
    rank.save("good", 1, 1.0)
    state = load(folder / "run" / "checkpoint-1", rank.number, 2)
    rank.seen["rank state"] = state.rank_state["torch"].tolist()  # type: ignore[attr-defined]
    rank.save("adapters differ", 2, 2.0 + rank.number)
    rank.save("no room", 3, 3.0, NoRoom())
    rank.save("no rename", 4, 4.0, NoRename())
    rank.save("good again", 5, 5.0)
    try:
        rank.save("lost", 6, 6.0, die=True)
    except PeerLostError as error:
        rank.seen["lost"] = str(error)
        leave(error.exit_code, rank.write)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
