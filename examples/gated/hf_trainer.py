"""The gate inside a plain transformers.Trainer, as a callback.

    torchrun --standalone --nproc_per_node 2 examples/gated/hf_trainer.py

Trains a tiny random Llama on made-up tokens, on CPUs. Start `clockgated` first, or name its socket with
CLOCKGATE_ADDRESS; without a daemon the ranks warn and go on.
"""

import argparse
import logging
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from clockgate_trainer import ClockGateCallback
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

VOCABULARY, LENGTH = 64, 16


class Counting(Dataset[dict[str, torch.Tensor]]):
    """Rows that count upwards from different numbers."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(LENGTH) + index) % VOCABULARY
        return {"input_ids": tokens, "labels": tokens, "attention_mask": torch.ones_like(tokens)}


def main() -> int:
    """Train on this rank; returns the exit code: 75 when the gate stopped the training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--output_dir", type=Path, default=Path("runs/hf-trainer"))
    options = parser.parse_args()
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
        )
    )
    arguments = TrainingArguments(
        output_dir=str(options.output_dir),
        max_steps=options.steps,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        save_steps=5,
        logging_steps=5,
        disable_tqdm=True,
        use_cpu=True,
        report_to="none",
    )
    callback = ClockGateCallback(job="hf-trainer")
    Trainer(model=model, args=arguments, train_dataset=Counting(), callbacks=[callback]).train()
    if dist.is_initialized():
        dist.destroy_process_group()
    return callback.exit_code


if __name__ == "__main__":
    sys.exit(main())
