"""The gate inside TRL's SFTTrainer, as a callback.

    torchrun --standalone --nproc_per_node 2 examples/gated/trl_sft.py

Tunes a tiny random Llama on made-up sentences, on CPUs; needs `pip install trl`. Start `clockgated` first, or name its
socket with CLOCKGATE_ADDRESS; without a daemon the ranks warn and go on.
"""

import argparse
import logging
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from clockgate_trainer import ClockGateCallback
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

WORDS = ["<pad>", "<unk>", "<eos>", "the", "clock", "of", "node", "is", "right", "wrong", "one", "two", "three"]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer that knows a dozen words."""
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", eos_token="<eos>")


def main() -> int:
    """Train on this rank; returns the exit code: 75 when the gate stopped the training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--output_dir", type=Path, default=Path("runs/trl-sft"))
    options = parser.parse_args()
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(WORDS),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
        )
    )
    arguments = SFTConfig(
        output_dir=str(options.output_dir),
        max_steps=options.steps,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        max_length=16,
        save_steps=5,
        logging_steps=5,
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
        report_to="none",
    )
    rows = [{"text": f"the clock of node {number} is {what}"} for number in WORDS[10:] for what in ("right", "wrong")]
    callback = ClockGateCallback(job="trl-sft")
    trainer = SFTTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list(rows * 8),
        processing_class=make_tokenizer(),
        callbacks=[callback],
    )
    trainer.train()
    if dist.is_initialized():
        dist.destroy_process_group()
    return callback.exit_code


if __name__ == "__main__":
    sys.exit(main())
