"""ClockGateCallback in a plain transformers.Trainer of one rank, under a scripted clock."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from clockgate_trainer import ClockGateCallback
from clockgate_trainer import callback as callback_module
from clockgate_trainer.errors import ConfigError, PeerLostError, StoppedAtLaunchError
from clockgate_trainer.gate.ballot import SoloVote
from clockgate_trainer.gate.gate import ClockGate, GateSettings
from clockgate_trainer.gate.model import Limits, SaveVerdict, StepVerdict
from clockgate_trainer.gate.policy import OnUnknown
from gated.hf_trainer import Counting
from support.scripted_side import ScriptedSide
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

GO, HOLD, STOP = StepVerdict.PROCEED, StepVerdict.HOLD, StepVerdict.STOP
SAVE, SKIP = SaveVerdict.SAVE, SaveVerdict.SKIP_SAVE
Connect = Callable[[ScriptedSide], list[tuple[str, Mapping[str, object]]]]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Make `ClockGate.connect` give a gate of one rank on a scripted side; returns its events."""

    def install(side: ScriptedSide) -> list[tuple[str, Mapping[str, object]]]:
        events: list[tuple[str, Mapping[str, object]]] = []
        settings = GateSettings(Limits(5_000_000, 50_000_000), OnUnknown.HOLD, poll_interval_s=0.01)

        def gate(**options: object) -> ClockGate:
            return ClockGate(SoloVote(), side, settings, lambda name, fields: events.append((name, fields)))

        monkeypatch.setattr(ClockGate, "connect", gate)
        return events

    return install


def make_trainer(folder: Path, *callbacks: ClockGateCallback, model: Any = None, **changes: Any) -> Trainer:
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    model = model or LlamaForCausalLM(LlamaConfig(vocab_size=64, num_key_value_heads=2, **shape))
    arguments = {"max_steps": 6, "save_steps": 2, "gradient_accumulation_steps": 2, "logging_steps": 1, **changes}
    return Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(folder),
            per_device_train_batch_size=2,
            disable_tqdm=True,
            use_cpu=True,
            report_to="none",
            dataloader_pin_memory=False,
            **arguments,
        ),
        train_dataset=Counting(),
        eval_dataset=Counting(),
        callbacks=list(callbacks),
    )


def losses(trainer: Trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("checkpoint-*"))


def test_steps_are_voted_once_holds_are_waited_out_and_no_loss_changes(tmp_path: Path, connect: Connect) -> None:
    plain = make_trainer(tmp_path / "plain")
    plain.train()
    side = ScriptedSide(held={3: 4})
    events = connect(side)
    callback = ClockGateCallback(job="x")
    gated = make_trainer(tmp_path / "gated", callback)
    gated.train()
    voted = [fields["step"] for name, fields in events if name == "gate"]
    assert voted == [0, 1, 2, 3, 4, 5, 6]
    assert [fields["step"] for name, fields in events if name == "hold"] == [3]
    assert losses(gated) == losses(plain)
    assert checkpoints(tmp_path / "gated") == checkpoints(tmp_path / "plain")
    assert callback.exit_code == 0
    assert side.closed
    assert isinstance(gated.model, torch.nn.Module)
    assert not gated.model._forward_hooks
    assert not gated.model._forward_pre_hooks


def test_training_goes_on_after_one_that_an_exception_ended(tmp_path: Path, connect: Connect) -> None:
    first, second = ScriptedSide(), ScriptedSide()
    connect(first)
    trainer = make_trainer(tmp_path, ClockGateCallback(), save_strategy="no")
    model = trainer.model
    assert isinstance(model, LlamaForCausalLM)
    batches = 0

    def run_out_of_memory(module: torch.nn.Module, inputs: object) -> None:
        nonlocal batches
        batches += 1
        if batches == 2:
            raise MemoryError

    with model.get_input_embeddings().register_forward_pre_hook(run_out_of_memory), pytest.raises(MemoryError):
        trainer.train()
    events = connect(second)
    trainer.train()
    assert [fields["step"] for name, fields in events if name == "gate"] == [0, 1, 2, 3, 4, 5, 6]
    assert first.closed
    assert second.closed
    assert not model._forward_hooks


def test_a_save_that_must_wait_is_made_up_for_and_the_last_one_never_waits(tmp_path: Path, connect: Connect) -> None:
    connect(ScriptedSide({2: (GO, SKIP), 6: (GO, SKIP)}))
    make_trainer(tmp_path, ClockGateCallback()).train()
    assert checkpoints(tmp_path) == ["checkpoint-3", "checkpoint-4", "checkpoint-6"]


def test_epoch_saves_are_gated_too(tmp_path: Path, connect: Connect) -> None:
    connect(ScriptedSide({16: (GO, SKIP)}))
    make_trainer(tmp_path, ClockGateCallback(), save_strategy="epoch", max_steps=-1, num_train_epochs=2).train()
    assert checkpoints(tmp_path) == ["checkpoint-17", "checkpoint-32"]


def test_a_stop_finishes_the_step_saves_and_ends_with_75(tmp_path: Path, connect: Connect) -> None:
    connect(ScriptedSide({3: (STOP, SKIP)}))
    callback = ClockGateCallback()
    trainer = make_trainer(tmp_path, callback)
    trainer.train()
    assert trainer.state.global_step == 3
    assert checkpoints(tmp_path) == ["checkpoint-2", "checkpoint-3"]
    assert callback.exit_code == 75


def test_a_stop_at_launch_trains_nothing(tmp_path: Path, connect: Connect) -> None:
    side = ScriptedSide({0: (STOP, SAVE)})
    connect(side)
    trainer = make_trainer(tmp_path, ClockGateCallback())
    with pytest.raises(StoppedAtLaunchError, match="before the first step"):
        trainer.train()
    assert trainer.state.global_step == 0
    assert side.closed


def test_what_a_callback_cannot_do_is_warned_about(
    tmp_path: Path, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    connect(ScriptedSide())
    with caplog.at_level(logging.WARNING, "clockgate_trainer"):
        make_trainer(tmp_path, ClockGateCallback(), max_steps=1).train()
    for limit in callback_module.LIMITS:
        assert limit in caplog.text


class Hidden(torch.nn.Module):
    """A model whose own forward is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, input_ids: torch.Tensor, **unused: object) -> None:
        raise AssertionError("not called")


class Sidestepping(Trainer):
    def compute_loss(self, model: Any, inputs: Any, *unused: object, **unused_too: object) -> torch.Tensor:
        loss: torch.Tensor = model.layer(inputs["input_ids"].float()[:, :1]).square().mean()
        return loss


def test_a_model_that_is_not_called_is_voted_on_before_its_update(
    tmp_path: Path, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    events = connect(ScriptedSide(held={2: 2}))
    trainer = make_trainer(tmp_path, ClockGateCallback(), model=Hidden(), save_strategy="no", max_steps=3)
    trainer.__class__ = Sidestepping
    with caplog.at_level(logging.WARNING, "clockgate_trainer"):
        trainer.train()
    assert [fields["step"] for name, fields in events if name == "gate"] == [0, 1, 2, 3]
    assert caplog.text.count("vote after the exchange instead") == 1


def test_an_evaluation_does_not_vote(tmp_path: Path, connect: Connect) -> None:
    events = connect(ScriptedSide())
    trainer = make_trainer(
        tmp_path, ClockGateCallback(), save_strategy="no", eval_strategy="steps", eval_steps=1, max_steps=2
    )
    trainer.train()
    assert [fields["step"] for name, fields in events if name == "gate"] == [0, 1, 2]


class LosesItsPeer(ScriptedSide):
    def ask(self, step: int) -> None:
        if step == 2:
            raise PeerLostError("rank 1 shows no sign of life", ranks=(1,))
        super().ask(step)


def test_a_lost_rank_ends_the_process_or_raises_as_chosen(
    tmp_path: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(LosesItsPeer())
    with pytest.raises(PeerLostError):
        make_trainer(tmp_path, ClockGateCallback(on_lost="raise"), save_strategy="no").train()
    left: list[int] = []

    def leave(code: int, flush: object) -> None:
        left.append(code)
        raise SystemExit(code)

    monkeypatch.setattr(callback_module, "leave", leave)
    with pytest.raises(SystemExit):
        make_trainer(tmp_path, ClockGateCallback(), save_strategy="no").train()
    assert left == [79]


def test_misspelt_options_are_told_at_once() -> None:
    with pytest.raises(TypeError, match="max_sync_dely"):
        ClockGateCallback(max_sync_dely=3)
    with pytest.raises(ConfigError, match="leave or raise"):
        ClockGateCallback(on_lost="hope")
