"""Ranks that save together, in scenes: `python -m support.save_scenes FOLDER SCENE...`.

Each scene forks its ranks from one process that has imported torch. They have a real vote, real collectives and the
trainer's Saver around a module of a few weights; a rank notes what it saw in FOLDER/SCENE/seen-RANK.json.
"""

import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from clockgate_trainer.checkpoint.digest import digest_tensors
from clockgate_trainer.checkpoint.files import HOST, Files, HostFiles
from clockgate_trainer.checkpoint.manifest import Manifest
from clockgate_trainer.checkpoint.resume import Found, load
from clockgate_trainer.checkpoint.save import Store
from clockgate_trainer.checkpoint.verify import read_manifest
from clockgate_trainer.data.order import Cursor
from clockgate_trainer.errors import TrainerError
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.gate.exit import leave
from clockgate_trainer.gate.gate import ClockGate, GateSettings
from clockgate_trainer.gate.model import Decision
from clockgate_trainer.gate.policy import OnUnknown
from clockgate_trainer.gate.sidecar import NullSidecar
from clockgate_trainer.gate.vote import open_vote
from clockgate_trainer.train import rng
from clockgate_trainer.train.distributed import Meeting, read_place
from clockgate_trainer.train.homes import find_homes, find_together
from clockgate_trainer.train.report import Standing
from clockgate_trainer.train.saving import Position, Saver
from clockgate_trainer.train.trained import Trained, trained_tensors
from safetensors.torch import load_file, save_file
from support.checkpoints import LIMITS
from torch.amp import GradScaler

LIMIT_S = 60
ADAPTER_FILE = "adapter_model.safetensors"


class Module(torch.nn.Module):
    """Some weights that every rank has alike."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(32, 32)

    def write(self, folder: Path, copies: Mapping[str, torch.Tensor] | None) -> None:
        if copies is not None:
            time.sleep(0.2)  # steps go by before the weights are read
        tensors = copies or {name: tensor.detach().clone() for name, tensor in self.named_parameters()}
        save_file(dict(tensors), folder / ADAPTER_FILE)


class SlowDisk(HostFiles):
    """A disk that needs half a second for each optimizer state, on which rank 0 can be told to die."""

    def __init__(self, *, deadly: bool = False) -> None:
        self._deadly = deadly

    def write(self, path: Path, content: bytes | memoryview) -> None:
        if path.name == "optimizer.pt":
            time.sleep(0.5)
            if self._deadly:
                os.kill(os.getpid(), signal.SIGKILL)
        super().write(path, content)


class FullDisk(HostFiles):
    """A disk without room."""

    def write(self, path: Path, content: bytes | memoryview) -> None:
        if path.name == "optimizer.pt":
            raise OSError(28, "No space left on device", str(path))
        super().write(path, content)


class Rank:
    """One rank of a scene: what the trainer's `run` puts together, without a daemon."""

    def __init__(self, folder: Path) -> None:
        dist.init_process_group("gloo")
        self.folder = folder
        self.place = read_place(os.environ)
        self.number = self.place.rank
        self.meeting = Meeting(self.place, 30)
        settings = GateSettings(LIMITS, OnUnknown.WARN, vote_timeout_s=20.0)
        self.gate = ClockGate(open_vote(60), NullSidecar(), settings, lambda name, fields: None)
        self.seen: dict[str, object] = {}
        self.events: list[str] = []
        self.standing = Standing()

    def start(self, output_dir: Path, files: Files = HOST, **options: object) -> None:
        """Begin a run in `output_dir`, which other ranks may share."""
        output_dir.mkdir(parents=True, exist_ok=True)
        self.output_dir = output_dir
        self.homes = find_homes(self.meeting, self.place, output_dir)
        self.model = Module()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        shared = self.homes.shared
        store = Store(
            output_dir,
            self.number,
            self.place.world_size,
            0,
            files,
            self.on_event,
            write_grace_s=20.0,
            writers=self.homes.writers,
        )
        self.saver = Saver(
            store,
            self.gate,
            self.meeting.bring_to_first if shared else self.meeting.gather,
            self.standing,
            Trained(
                self.model,
                self.optimizer,
                torch.optim.lr_scheduler.StepLR(self.optimizer, 1),
                GradScaler("cpu", enabled=False),
                self.model.write,
            ),
            identity={},
            spread=self.meeting.spread,
            **options,  # type: ignore[arg-type]
        )

    def on_event(self, name: str, fields: Mapping[str, object]) -> None:
        self.events.append(name)

    def step(self, number: int) -> Decision:
        """Train a step whose gradient is equal on all ranks."""
        self.gate.begin(number, batch=1, cursor_digest=number, last_step_ns=1)
        decision = self.gate.settle()
        for parameter in self.model.parameters():
            parameter.grad = torch.full_like(parameter, 0.1 * number)
        self.optimizer.step()
        self.saver.after_step(decision, loss=1.0 / number, label_tokens=8)
        return decision

    def save(self, decision: Decision, *, last: bool = False) -> dict[str, object]:
        random = rng.capture(torch.device("cpu"))
        position = Position(decision.step, Cursor(0, decision.step), random)
        result = self.saver.save(position, decision, last=last)
        return {"saved": result.saved, "diverged": result.diverged, "ranks": result.ranks, "reason": result.reason}

    def adapter_sha256(self) -> str:
        return digest_tensors(trained_tensors(self.model))

    def manifest(self, step: int) -> Manifest:
        manifest = read_manifest(self.output_dir / f"checkpoint-{step}", HOST)
        assert isinstance(manifest, Manifest)
        return manifest

    def find(self, output_dir: Path, spec: str = "auto") -> Found | None:
        """Start anew in `output_dir`: what all ranks go on from."""
        homes = find_homes(self.meeting, self.place, output_dir)
        settings = Settings(output_dir=output_dir, resume_from_checkpoint=spec)
        return find_together(settings, self.place, self.meeting, homes)


def apart(rank: Rank) -> None:
    """Ranks 0 and 1 share a node's folder, rank 2 has its own; one copy breaks, then a node is replaced."""
    node = rank.folder / ("a" if rank.number < 2 else "b")
    rank.start(node)
    rank.seen["homes"] = rank.homes.of_rank
    for number in (1, 2):
        rank.seen[f"save {number}"] = rank.save(rank.step(number))
    rank.seen["names"] = sorted(path.name for path in node.iterdir())
    rank.meeting.gather(None)
    if rank.number == 2:
        (node / "checkpoint-2" / "optimizer.pt").write_bytes(b"?")
    found = rank.find(node)
    assert found is not None
    state = load(found.path, rank.number, 3)
    rank.seen["healed"] = {"path": str(found.path), "step": found.step, "row": state.cursor["row"]}
    fresh = node if rank.number < 2 else rank.folder / "c"
    fresh.mkdir(exist_ok=True)
    found = rank.find(fresh)
    assert found is not None
    rank.seen["replaced"] = {"path": str(found.path), "step": found.step}
    found = rank.find(
        fresh, str(rank.folder / "b" / "checkpoint-1") if rank.number == 2 else str(node / "checkpoint-1")
    )
    assert found is not None
    rank.seen["named"] = {"path": str(found.path), "step": found.step}
    rank.start(node, FullDisk() if rank.number == 2 else HOST)
    rank.seen["no room"] = rank.save(rank.step(3))
    rank.meeting.gather(None)
    rank.seen["names after"] = sorted(path.name for path in node.iterdir() if not path.name.startswith("quarantined"))


def strangers(rank: Rank) -> None:
    """Two nodes' folders hold checkpoints of one step and of different runs."""
    node = rank.folder / str(rank.number)
    for other in range(2):
        rank.start(rank.folder / str(other))
        if other == 1:
            with torch.no_grad():
                rank.model.layer.bias.fill_(0.5)
        rank.save(rank.step(1))
    try:
        rank.find(node)
    except TrainerError as error:
        rank.seen["error"] = str(error)


def background(rank: Rank) -> None:
    """A slow disk: steps go on while it writes, the next save waits, the last one is there when it returns."""
    rank.start(rank.folder / "run", SlowDisk(), async_save=True)
    decision = rank.step(1)
    sha256 = rank.adapter_sha256()
    rank.seen["first"] = rank.save(decision)
    number = 1
    while rank.saver.saved_step == 0 and number < 10_000:
        number += 1
        rank.step(number)
        time.sleep(0.01)
    rank.seen["steps meanwhile"] = number - 1
    written = load_file(rank.output_dir / "checkpoint-1" / ADAPTER_FILE)
    rank.seen["is what it was"] = rank.manifest(1).adapter_sha256 == sha256 == digest_tensors(written)
    rank.seen["standing"] = str(rank.standing.checkpoint)
    rank.seen["began"] = rank.save(rank.step(number + 1))
    rank.seen["saved at"] = rank.saver.saved_step
    rank.seen["next"] = rank.save(rank.step(number + 2))
    rank.seen["waited for"] = rank.saver.saved_step - number
    rank.seen["last"] = rank.save(rank.step(number + 3), last=True)
    rank.seen["all"] = sorted(int(path.name[11:]) - number for path in (rank.folder / "run").glob("checkpoint-*"))
    rank.seen["events"] = rank.events
    rank.saver.drain()


def background_fails(rank: Rank) -> None:
    """A full disk in the background costs the checkpoint and nothing else."""
    rank.start(rank.folder / "run", FullDisk(), async_save=True)
    rank.save(rank.step(1))
    rank.saver.drain()
    rank.seen["saved"] = rank.saver.saved_step
    rank.seen["events"] = rank.events
    rank.seen["names"] = sorted(path.name for path in (rank.folder / "run").iterdir())


def background_killed(rank: Rank) -> None:
    """Rank 0 dies while its disk writes, between two steps of the others."""
    rank.start(rank.folder / "run")
    rank.save(rank.step(1))
    rank.start(rank.folder / "run", SlowDisk(deadly=True), async_save=True)
    rank.save(rank.step(2))
    for number in range(3, 10_000):
        rank.step(number)
        time.sleep(0.01)


def diverged(rank: Rank) -> None:
    """Weights and momentum change on one rank of three; then on rank 0; then nothing is repaired."""
    for case, culprit, repairs in (("rank 1", 1, "broadcast"), ("rank 0", 0, "broadcast"), ("stop", 1, "stop")):
        rank.events.clear()
        rank.start(rank.folder / case, on_divergence=repairs)
        decision = rank.step(1)
        if rank.number == culprit:
            with torch.no_grad():
                rank.model.layer.weight.view(torch.int32)[0, 0] ^= 1
                rank.optimizer.state[rank.model.layer.weight]["exp_avg"][0, 0] += 1
        rank.seen[case] = rank.save(decision)
        rank.seen[f"{case} adapter"] = rank.adapter_sha256()
        rank.seen[f"{case} events"] = [*rank.events]
        if repairs == "broadcast":
            repair = rank.manifest(1).adapter_repair
            assert repair is not None
            rank.seen[f"{case} repair"] = [repair.source_rank, repair.ranks]
        rank.step(2)
        rank.seen[f"{case} after"] = rank.adapter_sha256()


SCENES: Mapping[str, tuple[int, Callable[[Rank], None]]] = {
    "apart": (3, apart),
    "strangers": (2, strangers),
    "background": (2, background),
    "background-fails": (2, background_fails),
    "background-killed": (2, background_killed),
    "diverged": (3, diverged),
}


def main(folder: Path, scenes: list[str]) -> None:
    """Play `scenes` and print the exit codes of their ranks as JSON."""
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])  # what it imports takes seconds
    print(json.dumps({name: _play(folder / name, name) for name in scenes}))


def _play(folder: Path, name: str) -> list[int]:
    folder.mkdir()
    ranks, _ = SCENES[name]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pids = [_fork(folder, name, rank, ranks, port) for rank in range(ranks)]
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def _fork(folder: Path, name: str, number: int, ranks: int, port: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        signal.alarm(LIMIT_S)
        torch.set_num_threads(1)
        os.environ |= {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(ranks)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        rank = Rank(folder)
        try:
            SCENES[name][1](rank)
            code = 0
        except TrainerError as error:
            rank.seen["error"] = str(error)
            code = error.exit_code
        _note(rank)
        leave(code, lambda: None)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)


def _note(rank: Rank) -> None:
    (rank.folder / f"seen-{rank.number}.json").write_text(json.dumps(rank.seen), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
