"""A checkpoint store without processes or devices: small states, a gate of given rows, and a disk that loses power."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from clockgate_trainer.checkpoint.best import Score
from clockgate_trainer.checkpoint.digest import digest_tensors
from clockgate_trainer.checkpoint.files import HOST, Files, HostFiles
from clockgate_trainer.checkpoint.save import SaveResult, Store, save_checkpoint
from clockgate_trainer.checkpoint.state import TrainState
from clockgate_trainer.gate.decide import decide
from clockgate_trainer.gate.model import ABSENT, Decision, Flags, Kind, Limits, Row, SaveVerdict, StepVerdict
from safetensors.torch import save_file

LIMITS = Limits(warn_ns=5_000_000, hold_ns=50_000_000)


def make_row(kind: Kind = Kind.STEP, step: int = 1, **changes: int) -> Row:
    """A rank with a good clock."""
    row = Row(
        version=1,
        kind=kind,
        step=step,
        step_verdict=StepVerdict.PROCEED,
        save_verdict=SaveVerdict.SAVE,
        reasons=0,
        relative_bound_ns=1_000_000,
        utc_bound_ns=ABSENT,
        reference_hash=7,
        epoch=3,
        sent_wall_ns=1_700_000_000_000_000_000,
        step_duration_ns=ABSENT,
        flags=Flags.NONE,
        batch=ABSENT,
        cursor_digest=ABSENT,
        content_digest=ABSENT,
    )
    return replace(row, **changes)


def make_decision(step: int = 1, *rows: Row) -> Decision:
    """The decision of a step that `rows` (one good one by default) give."""
    return decide(rows or (make_row(step=step),), LIMITS)


@dataclass
class FakeGate:
    """Votes of one rank among others whose rows are told: `others(own)` are the rows of the ranks after `rank`s own.

    `changes` are fields in which its own rows differ from those of a good clock.
    """

    rank: int = 0
    others: Callable[[Row], Sequence[Row]] = lambda own: ()
    changes: Mapping[str, int] = field(default_factory=dict)
    votes: list[Row] = field(default_factory=list)

    def agree(
        self, kind: Kind, step: int, *, content_digest: int = ABSENT, flags: Flags = Flags.NONE, extra_s: float = 0.0
    ) -> Decision:
        """Vote."""
        own = make_row(kind, step, content_digest=content_digest, flags=flags, **self.changes)
        self.votes.append(own)
        rows = list(self.others(own))
        rows.insert(self.rank, own)
        return decide(tuple(rows), LIMITS)


def make_adapter(value: float, size: int = 8) -> dict[str, torch.Tensor]:
    """An adapter that one number tells apart."""
    return {"a.lora_A.weight": torch.full((2, size), value), "a.lora_B.weight": torch.zeros(size, 2)}


def adapter_value(checkpoint: Path) -> float:
    """The number that the saved adapter was made with."""
    return float(json.loads((checkpoint / "adapter_config.json").read_text())["value"])


def write_adapter(value: float, size: int = 8) -> Callable[[Path], None]:
    """What peft's save_pretrained does, on a small scale."""

    def write(folder: Path) -> None:
        save_file(make_adapter(value, size), folder / "adapter_model.safetensors")
        (folder / "adapter_config.json").write_text(json.dumps({"value": value}))

    return write


def make_state(step: int, rank: int = 0, world_size: int = 1) -> TrainState:
    """A run after `step` steps."""
    return TrainState(
        step=step,
        cursor={"epoch": 0, "row": 4 * step},
        world_size=world_size,
        optimizer_state={"state": {0: {"exp_avg": torch.arange(6.0), "step": step}}, "param_groups": [{"lr": 2e-4}]},
        scheduler_state={"last_epoch": step, "_last_lr": [2e-4]},
        rank_state={"torch": torch.tensor([rank, step], dtype=torch.uint8), "python": [3, [1, 2], None], "raw": b"\0x"},
        settings={"learning_rate": 2e-4, "seed": 0, "betas": (0.9, 0.999)},
    )


def save(
    store: Store,
    step: int,
    value: float,
    gate: FakeGate | None = None,
    *,
    size: int = 8,
    decision: Decision | None = None,
    score: float | None = None,
) -> SaveResult:
    """Save as the only rank of a run; `score` is a loss."""
    return save_checkpoint(
        store,
        gate or FakeGate(),
        decision or make_decision(step),
        make_state(step),
        write_adapter=write_adapter(value, size),
        adapter_sha256=digest_tensors(make_adapter(value, size)),
        exchange=lambda own: [own],
        score=None if score is None else Score("loss", score),
    )


def make_store(folder: Path, files: Files = HOST, *, limit: int = 0, events: list[str] | None = None) -> Store:
    """The store of the only rank; `events` hears the names and details of what is told."""
    heard = events if events is not None else []

    def on_event(name: str, fields: Mapping[str, object]) -> None:
        heard.append(f"{name} {dict(fields)}")

    return Store(folder, 0, 1, limit, files, on_event)


class PowerCut(BaseException):
    """The machine went dark: nothing after this runs, not even an except OSError."""


@dataclass(frozen=True)
class _Loose:
    """A change of names that is not on disk yet; `before` is the content of a file that was replaced."""

    source: Path
    target: Path
    before: bytes | None = None


class FragileDisk(HostFiles):
    """Real files below `root` whose disk keeps only what was synced.

    Counts the operations that change something. The one after `cut_after` of them never comes about (or, when
    `torn`, is done in half) and PowerCut is raised; `fail_at` instead gives the operation of that number an OSError.
    """

    def __init__(self, root: Path, *, cut_after: int = -1, torn: bool = False, fail_at: int = -1) -> None:
        self.root = root
        self.operations: list[str] = []
        self._cut_after, self._torn, self._fail_at = cut_after, torn, fail_at
        self._synced_files = {path.stat().st_ino for path in root.rglob("*") if path.is_file()}
        self._synced_names = {_entry(path) for path in root.rglob("*")}
        self.loose: list[_Loose] = []

    def make_folder(self, path: Path) -> None:
        self._begin(f"make_folder {path.name}")
        super().make_folder(path)

    def write(self, path: Path, content: bytes | memoryview) -> None:
        self._begin(f"write {path.name}", lambda: path.write_bytes(bytes(content)[: len(content) // 2]))
        path.write_bytes(content)
        self._synced_files.add(path.stat().st_ino)

    def sync_file(self, path: Path) -> None:
        self._begin(f"sync_file {path.name}")
        self._synced_files.add(path.stat().st_ino)

    def sync_folder(self, path: Path) -> None:
        self._begin(f"sync_folder {path.name}")
        self._synced_names |= {_entry(entry) for entry in path.iterdir()}
        self.loose = [one for one in self.loose if one.target.parent != path]

    def rename(self, source: Path, target: Path) -> None:
        self._begin(f"rename {source.name} {target.name}")
        super().rename(source, target)
        self.loose.append(_Loose(source, target))

    def replace(self, source: Path, target: Path) -> None:
        self._begin(f"replace {source.name} {target.name}")
        before = target.read_bytes() if target.exists() else None
        super().replace(source, target)
        self.loose.append(_Loose(source, target, before))

    def remove_file(self, path: Path) -> None:
        self._begin(f"remove_file {path.name}")
        super().remove_file(path)

    def remove_tree(self, path: Path) -> None:
        self._begin(f"remove_tree {path.name}", lambda: _remove_half(path))
        # The numbers of what goes may be given to new files.
        gone = {entry.stat().st_ino for entry in path.rglob("*")} | {path.stat().st_ino}
        self._synced_files -= gone
        self._synced_names = {entry for entry in self._synced_names if entry[0] not in gone}
        super().remove_tree(path)

    def lose_power(self, kept: int, contents: str = "torn") -> None:
        """What was not synced is gone: contents, names, and all changes of names but the first `kept` loose ones.

        `contents` that were not synced are torn (half is there), empty, or happen to be kept.
        """
        surviving = {one.target for one in self.loose[:kept]}
        for path in sorted(self.root.rglob("*"), reverse=True):
            if path.is_file() and path.stat().st_ino not in self._synced_files and contents != "kept":
                os.truncate(path, path.stat().st_size // 2 if contents == "torn" else 0)
            if path.is_file() and _entry(path) not in self._synced_names and path not in surviving:
                path.unlink()
        for one in reversed(self.loose[kept:]):
            if one.target.exists():
                one.target.rename(one.source)
            if one.before is not None:
                one.target.write_bytes(one.before)

    def _begin(self, operation: str, half: Callable[[], object] = lambda: None) -> None:
        number = len(self.operations)
        if number == self._cut_after:
            if self._torn:
                half()
            raise PowerCut(operation)
        self.operations.append(operation)
        if number == self._fail_at:
            raise OSError(28, "No space left on device", str(self.root))


def _entry(path: Path) -> tuple[int, str]:
    return path.parent.stat().st_ino, path.name


def _remove_half(folder: Path) -> None:
    for path in sorted(folder.iterdir())[: len(list(folder.iterdir())) // 2 + 1]:
        path.unlink()
