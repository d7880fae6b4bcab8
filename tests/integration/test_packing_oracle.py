"""The trainers of transformers and of TRL as oracles: the same samples in every step must give the same loss curve.

Every optimizer step is the whole data set, so that no trainer's own order matters; what is compared is the loss, its
normalisation over accumulated micro-batches, and that packed samples do not see each other.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from clockgate_trainer.__main__ import main
from clockgate_trainer.data.collate import collate
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.train.corpus import load_corpus
from clockgate_trainer.train.model import build_model
from datasets import Dataset
from support.tiny_model import make_model, make_rows, make_tokenizer
from transformers import Trainer, TrainingArguments
from trl import SFTConfig, SFTTrainer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

STEPS = 20
SAMPLES = 6
ROW = 64


@pytest.fixture
def flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    return [
        "--model_name_or_path", str(make_model(tmp_path / "model")), "--bits", "32",
        "--dataset", str(make_rows(tmp_path / "rows.jsonl", SAMPLES)), "--dataset_format", "input-output",
        "--device", "cpu", "--lora_r", "4", "--learning_rate", "0.01", "--optim", "adamw_torch", "--max_grad_norm",
        "0.5", "--max_steps", str(STEPS), "--gradient_checkpointing", "false", "--time_sync_check", "false",
        "--logging_steps", "100", "--gradient_accumulation_steps", str(SAMPLES), "--keep_steps",
    ]  # fmt: skip


def common(accumulation: int, folder: Path) -> dict[str, Any]:
    return {
        "output_dir": str(folder), "use_cpu": True, "per_device_train_batch_size": 1, "learning_rate": 0.01,
        "gradient_accumulation_steps": accumulation, "lr_scheduler_type": "constant", "optim": "adamw_torch",
        "max_grad_norm": 0.5, "max_steps": STEPS, "save_strategy": "no", "logging_steps": 1, "report_to": "none",
        "disable_tqdm": True, "remove_unused_columns": False,
    }  # fmt: skip


def curve(history: list[dict[str, Any]]) -> list[float]:
    return [row["loss"] for row in history if "loss" in row]


def ours(flags: list[str], folder: Path, *more: str) -> list[float]:
    assert main([*flags, "--output_dir", str(folder), *more]) == 0
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["loss"] for line in lines]


def test_packed_and_unpacked_loss_curves_are_those_of_transformers_and_trl(flags: list[str], tmp_path: Path) -> None:
    settings = parse([*flags, "--output_dir", str(tmp_path / "data")])
    corpus = load_corpus(settings)
    cpu = torch.device("cpu")

    def gather(rows: list[Any]) -> dict[str, Any]:
        batch = collate(rows, corpus.pad_id)
        return {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask, "labels": batch.labels}

    plain: Any = Trainer(
        model=build_model(settings, cpu),
        args=TrainingArguments(**common(SAMPLES, tmp_path / "plain")),
        train_dataset=list(corpus.data.rows),
        data_collator=gather,
    )
    plain.train()

    rows = [{"input_ids": row.input_ids.tolist(), "labels": row.labels.tolist()} for row in corpus.data.rows]
    packed = ours(flags, tmp_path / "packed", "--packing", "--pack_length", str(ROW))
    with warnings.catch_warnings():
        # It warns that without flash attention samples might see each other; on one row the mask says otherwise.
        warnings.simplefilter("ignore")
        theirs: Any = SFTTrainer(
            model=build_model(settings, cpu),
            args=SFTConfig(
                **common(64, tmp_path / "trl"), max_length=ROW, packing=True, packing_strategy="bfd",
                gradient_checkpointing=False, bf16=False,
            ),
            processing_class=make_tokenizer(pad="</s>"),
            train_dataset=Dataset.from_list(rows),
        )  # fmt: skip
        theirs.train()

    wanted = curve(plain.state.log_history)
    assert len(wanted) == STEPS
    assert wanted[-1] < wanted[0] - 0.5
    assert ours(flags, tmp_path / "unpacked") == pytest.approx(wanted, rel=1e-3)
    assert packed == pytest.approx(wanted, rel=1e-3)
    assert curve(theirs.state.log_history) == pytest.approx(packed, rel=1e-3)
