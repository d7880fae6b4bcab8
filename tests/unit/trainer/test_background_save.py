import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from clockgate_trainer.checkpoint.background import Background, copied
from clockgate_trainer.checkpoint.best import Score
from clockgate_trainer.checkpoint.digest import digest_tensors
from clockgate_trainer.checkpoint.draft import Order
from clockgate_trainer.checkpoint.files import HostFiles
from clockgate_trainer.checkpoint.save import SaveResult, close_save, open_save
from clockgate_trainer.checkpoint.verify import verify
from clockgate_trainer.data.order import Cursor
from clockgate_trainer.gate.gate import ClockGate
from clockgate_trainer.gate.model import Flags, Kind
from clockgate_trainer.train.report import Standing
from clockgate_trainer.train.saving import LossWindow, Position, Saver
from clockgate_trainer.train.trained import Trained
from safetensors.torch import save_file
from support.checkpoints import FakeGate, make_adapter, make_decision, make_row, make_state, make_store, write_adapter
from torch.amp import GradScaler


class GatedDisk(HostFiles):
    """A disk that writes nothing until it may."""

    def __init__(self) -> None:
        self.may = threading.Event()

    def make_folder(self, path: Path) -> None:
        assert self.may.wait(20)
        super().make_folder(path)


def make_order(folder: Path, disk: HostFiles, gate: FakeGate) -> Order:
    order = open_save(
        make_store(folder, disk),
        gate,
        make_decision(5),
        make_state(5),
        write_adapter=write_adapter(1.0),
        adapter_sha256=digest_tensors(make_adapter(1.0)),
        exchange=lambda own: [own],
    )
    assert not isinstance(order, SaveResult)
    return order


def test_a_save_is_written_by_a_thread_and_committed_by_whoever_takes_it(tmp_path: Path) -> None:
    disk, gate, background = GatedDisk(), FakeGate(), Background()
    order = make_order(tmp_path, disk, gate)
    background.start(order)
    assert background.order is order
    assert not background.written()
    assert list(tmp_path.iterdir()) == []
    disk.may.set()
    order, draft = background.take()
    assert not background.written()
    assert not (tmp_path / "checkpoint-5").exists()
    assert close_save(gate, order, draft).saved
    assert verify(tmp_path / "checkpoint-5") == ()


class StepGate(FakeGate):
    """A gate whose steps carry what ranks asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.requested: list[Flags] = []

    def request(self, flag: Flags) -> None:
        self.requested.append(flag)


class Model(torch.nn.Linear):
    """Weights that can be saved."""

    def write(self, folder: Path, copies: Mapping[str, torch.Tensor] | None) -> None:
        save_file(dict(copies or {}), folder / "adapter_model.safetensors")


def make_saver(folder: Path, gate: FakeGate) -> Saver:
    model = Model(2, 2)
    optimizer = torch.optim.SGD(model.parameters())
    return Saver(
        make_store(folder),
        cast(ClockGate, gate),
        lambda own: [own],
        Standing(),
        Trained(
            model,
            optimizer,
            torch.optim.lr_scheduler.ConstantLR(optimizer),
            GradScaler("cpu", enabled=False),
            model.write,
        ),
        identity={},
        async_save=True,
    )


def test_a_row_of_the_step_after_speaks_of_the_save_before_and_commits_nothing(tmp_path: Path) -> None:
    gate = StepGate()
    saver = make_saver(tmp_path, gate)
    saver.save(Position(5, Cursor(), {}), make_decision(5, make_row(step=5)))
    ready = [make_decision(step, make_row(step=step, flags=Flags.SAVE_READY)) for step in (6, 7)]
    while Flags.SAVE_READY not in gate.requested:
        saver.after_step(ready[0], 1.0, 1)
        time.sleep(0.01)
    assert [vote.kind for vote in gate.votes] == [Kind.SAVE]
    saver.after_step(make_decision(7, make_row(step=7)), 1.0, 1)
    assert saver.saved_step == 0
    saver.after_step(ready[1], 1.0, 1)
    assert saver.saved_step == 5
    assert [vote.kind for vote in gate.votes] == [Kind.SAVE, Kind.COMMIT, Kind.COMMIT]
    assert verify(tmp_path / "checkpoint-5") == ()


def test_a_second_save_has_no_place_before_the_first_is_taken(tmp_path: Path) -> None:
    disk, background = GatedDisk(), Background()
    background.start(make_order(tmp_path, disk, FakeGate()))
    with pytest.raises(RuntimeError, match="step 5 is not committed yet"):
        background.start(make_order(tmp_path, disk, FakeGate()))
    disk.may.set()
    background.take()
    with pytest.raises(RuntimeError, match="no save is under way"):
        background.take()


def test_an_error_that_is_not_the_disks_is_not_lost(tmp_path: Path) -> None:
    def crash(folder: Path) -> None:
        raise KeyError("a bug")

    background = Background()
    background.start(replace(make_order(tmp_path, HostFiles(), FakeGate()), write_adapter=crash))
    with pytest.raises(KeyError, match="a bug"):
        background.take()


def test_a_copy_shares_no_memory_and_has_the_same_content() -> None:
    state = make_state(3)
    copy = copied(state)
    moments = state.optimizer_state["state"]
    assert isinstance(moments, dict)
    moments[0]["exp_avg"].fill_(-1)
    random = state.rank_state["torch"]
    assert isinstance(random, torch.Tensor)
    random.fill_(9)
    fresh = make_state(3)
    assert copy.rank_state["torch"].tolist() == fresh.rank_state["torch"].tolist()  # type: ignore[attr-defined]
    assert copy.optimizer_state["state"][0]["exp_avg"].tolist() == list(range(6))  # type: ignore[index]
    assert (copy.cursor, copy.step, copy.settings) == (fresh.cursor, fresh.step, fresh.settings)
    assert copied([1, (torch.ones(1), "a")]) == [1, (torch.ones(1), "a")]


def test_a_score_is_the_mean_over_tokens_and_needs_enough_steps() -> None:
    losses = LossWindow(2)
    losses.add(1.0, 20)
    assert losses.take() is None
    losses.add(4.0, 40)
    assert losses.take() == Score("train_loss", 3.0)
    assert losses.take() is None
