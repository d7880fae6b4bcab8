"""transformers.Trainer as the oracle: the same rows in the same order must give the same losses and adapter."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from clockgate_trainer.__main__ import main
from clockgate_trainer.data.collate import collate
from clockgate_trainer.data.order import epoch_order
from clockgate_trainer.data.tokens import TokenRow
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.train.adapter import load_adapter
from clockgate_trainer.train.corpus import load_corpus
from clockgate_trainer.train.model import build_model
from clockgate_trainer.train.trained import trained_tensors
from support.tiny_model import make_model, make_rows
from transformers import Trainer, TrainingArguments

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

STEPS = 20


def test_adapter_is_the_one_that_the_trainer_of_transformers_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    flags = [
        "--model_name_or_path", str(make_model(tmp_path / "model")),
        "--dataset", str(make_rows(tmp_path / "rows.jsonl", 2 * STEPS)),
        "--group_by_length", "false", "--device", "cpu", "--lora_r", "4",
        "--gradient_accumulation_steps", "2", "--learning_rate", "0.01",
        "--per_device_train_batch_size", "1", "--lr_scheduler_type", "linear", "--warmup_steps", "3",
        "--optim", "adamw_torch", "--weight_decay", "0.1", "--max_grad_norm", "0.5", "--max_steps", str(STEPS),
        "--output_dir", str(tmp_path / "run"), "--time_sync_check", "false",
    ]  # fmt: skip
    settings = parse(flags)
    corpus = load_corpus(settings)
    theirs = build_model(settings, torch.device("cpu"))
    ours = build_model(settings, torch.device("cpu"))
    start = {name: tensor.detach().clone() for name, tensor in trained_tensors(theirs).items()}

    def gather(rows: list[TokenRow]) -> dict[str, Any]:
        batch = collate(rows, corpus.pad_id)
        return {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask, "labels": batch.labels}

    order = epoch_order(settings.order_seed, 0, len(corpus.data.rows))
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "oracle"),
        use_cpu=True,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=2,
        learning_rate=0.01,
        lr_scheduler_type="linear",
        warmup_steps=3,
        optim="adamw_torch",
        weight_decay=0.1,
        max_grad_norm=0.5,
        max_steps=STEPS,
        save_strategy="no",
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        train_sampling_strategy="sequential",
    )
    dataset: Any = [corpus.data.rows[row] for row in order]
    oracle = Trainer(model=theirs, args=arguments, train_dataset=dataset, data_collator=gather)
    oracle.train()

    assert main(flags) == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    wanted_losses = [row["loss"] for row in oracle.state.log_history if "loss" in row]
    assert len(wanted_losses) == STEPS
    assert [json.loads(line)["loss"] for line in lines] == pytest.approx(wanted_losses, rel=1e-3)
    load_adapter(ours, tmp_path / "run" / f"checkpoint-{STEPS}")
    mine = trained_tensors(ours)
    for name, wanted in trained_tensors(theirs).items():
        assert not torch.equal(wanted, start[name])
        torch.testing.assert_close(mine[name], wanted, rtol=1e-3, atol=1e-4)
