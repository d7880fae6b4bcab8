"""Memory that runs short on a rank that is alone, and what is said of it."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from clockgate_trainer.checkpoint.files import HOST
from clockgate_trainer.checkpoint.manifest import Manifest
from clockgate_trainer.checkpoint.verify import read_manifest
from clockgate_trainer.data.order import Split
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.outcome import read_outcome
from clockgate_trainer.planner.inventory import read_shape
from clockgate_trainer.planner.relief import relief
from clockgate_trainer.train import run
from clockgate_trainer.train.qlora import QLORA
from clockgate_trainer.train.shortage import is_shortage
from hypothesis import given
from hypothesis import strategies as st
from support.chaos import small
from support.tiny_model import make_model, make_rows
from transformers import AutoConfig

FLAGS = (
    "--time_sync_check", "false", "--device", "cpu", "--max_steps", "6", "--save_strategy", "no",
    "--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "1",
)  # fmt: skip
LLAMA_7B = {"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32}


def out_of_memory() -> torch.OutOfMemoryError:
    return torch.OutOfMemoryError("CUDA out of memory: made up")


def digest(folder: Path, step: int) -> str:
    manifest = read_manifest(folder / f"checkpoint-{step}", HOST)
    assert isinstance(manifest, Manifest)
    return manifest.adapter_sha256


def told(folder: Path) -> list[str]:
    lines = (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [event["detail"] for event in map(json.loads, lines) if event["event"] == "out_of_memory"]


class Limited:
    """Room for one row from step 4 on, missed in the forward or in the backward of a larger micro-batch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, where: str, *, error: Exception | None = None) -> None:
        torch.set_num_threads(1)
        self._steps = 0
        self._error = error or out_of_memory()
        whole = small.SmallModel.forward

        def forward(model: small.SmallModel, **batch: Any) -> small.Output:
            if where == "forward":
                self._demand_room(batch["input_ids"])
            return whole(model, **batch)

        monkeypatch.setattr(small.SmallModel, "forward", forward)
        if where == "backward":
            monkeypatch.setattr(small, "within_backward", self._demand_room)
        self.parts = replace(small.PARTS, make_optimizer=self._make_optimizer)

    def _make_optimizer(self, *arguments: Any) -> torch.optim.Optimizer:
        optimizer = small.PARTS.make_optimizer(*arguments)
        optimizer.register_step_post_hook(self._count)
        return optimizer

    def _count(self, *unused: object) -> None:
        self._steps += 1

    def _demand_room(self, tensor: torch.Tensor) -> None:
        if self._steps >= 3 and tensor.shape[0] > 1:
            raise self._error


def test_a_shortage_in_forward_or_backward_gives_the_same_run(tmp_path: Path) -> None:
    for where in ("forward", "backward"):
        with pytest.MonkeyPatch.context() as patch:
            limited = Limited(patch, where)
            assert run.main(parse(["--output_dir", str(tmp_path / where), *FLAGS]), {}, limited.parts) == 0
        texts = told(tmp_path / where)
        assert ["in 2 micro-batches of 2 rows" in texts[0], "in 4 micro-batches of 1 row" in texts[1]] == [True, True]
    assert digest(tmp_path / "forward", 6) == digest(tmp_path / "backward", 6)


def test_a_shortage_that_nobody_can_mend_ends_with_78_and_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def make_optimizer(*arguments: Any) -> torch.optim.Optimizer:
        optimizer = small.PARTS.make_optimizer(*arguments)

        def fail(*unused: object) -> None:
            raise out_of_memory()

        optimizer.register_step_pre_hook(fail)
        return optimizer

    parts = replace(small.PARTS, make_optimizer=make_optimizer)
    assert run.main(parse(["--output_dir", str(tmp_path), *FLAGS]), {}, parts) == 78
    outcome = read_outcome(tmp_path)
    assert outcome is not None
    assert outcome.reason.startswith("rank 0 ran out of memory (CUDA out of memory: made up). Lower --per_device")
    assert "Traceback" not in capsys.readouterr().err


def test_packed_rows_are_halved_too_and_advice_is_by_plans_arithmetic(tmp_path: Path) -> None:
    model, rows = make_model(tmp_path / "model"), make_rows(tmp_path / "rows.jsonl", 12)
    common = [
        "--model_name_or_path", str(model), "--dataset", str(rows), "--device", "cpu", "--lora_r", "2", "--bits", "32",
        "--time_sync_check", "false", "--max_steps", "1", "--keep_steps", "--packing", "--pack_length", "64",
        "--save_strategy", "no",
    ]  # fmt: skip

    def build_model(settings: Any, device: torch.device) -> Any:
        built = QLORA.build_model(settings, device)

        def demand_room(module: Any, arguments: Any, named: dict[str, Any]) -> None:
            if named["input_ids"].shape[0] > 1:
                raise out_of_memory()

        built.register_forward_pre_hook(demand_room, with_kwargs=True)
        return built

    small_parts = replace(QLORA, build_model=build_model)
    for name, size, parts in (("halved", 2, small_parts), ("small", 1, QLORA)):
        flags = ["--per_device_train_batch_size", str(size), "--gradient_accumulation_steps", str(4 // size)]
        assert run.main(parse([*common, *flags, "--output_dir", str(tmp_path / name)]), {}, parts) == 0
    assert digest(tmp_path / "halved", 1) == digest(tmp_path / "small", 1)
    flags = ["--per_device_train_batch_size", "2", "--oom_fallback", "false", "--output_dir", str(tmp_path / "refused")]
    assert run.main(parse([*common, *flags]), {}, small_parts) == 78
    outcome = read_outcome(tmp_path / "refused")
    assert outcome is not None
    assert "By plan's arithmetic a copy takes" in outcome.reason
    assert "--per_device_train_batch_size 1 --gradient_accumulation_steps 32" in outcome.reason


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 8))
def test_smaller_micro_batches_make_the_same_step_and_end_at_one_row(rows: int, batches: int, world: int) -> None:
    split: Split | None = Split(world, rows, batches)
    sizes = []
    while split is not None:
        assert split.rows_per_step == world * rows * batches
        sizes.append(split.micro_batch)
        split = split.smaller()
    assert sizes[-1] == 1
    assert all(after <= before // 2 for before, after in pairwise(sizes))


def test_a_split_takes_a_size_that_divides_the_step_and_no_other() -> None:
    assert Split(2, 4, 2).in_micro_batches_of(2) == Split(2, 2, 4)
    assert Split(2, 4, 2).in_micro_batches_of(3) == Split(2, 4, 2)
    assert Split(2, 4, 2).in_micro_batches_of(0) == Split(2, 4, 2)


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (out_of_memory(), True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:119] . DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"), True),
        (RuntimeError("device-side assert"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_says_that_memory_is_short(error: Exception, short: bool) -> None:
    assert is_shortage(error) is short


def test_advice_names_what_takes_less_and_how_much() -> None:
    shape = read_shape(AutoConfig.for_model("llama", vocab_size=32000, **LLAMA_7B))
    flags = "--bits 16 --bf16 --gradient_checkpointing false --per_device_train_batch_size 4 --optim adamw_torch"
    text = relief(parse(flags.split()), shape, 80 * 2**30)
    assert "of 80.0 GiB that the device has" in text
    for way in ("--per_device_train_batch_size 1 --gradient_accumulation_steps 64: ", "--bits 4: ",
                "--gradient_checkpointing true: ", "--optim paged_adamw_8bit: "):  # fmt: skip
        assert way in text
    assert "--bf16: " not in text
    assert "--fp16 would save nothing" in text
