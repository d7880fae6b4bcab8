"""A model folder and a data file small enough to train in seconds: one token per character, weights from a seed."""

import json
import string
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

MARKS = ("<unk>", "<s>", "</s>")


def make_tokenizer(*, pad: str | None = None, begin: str | None = "<s>") -> PreTrainedTokenizerFast:
    """Characters as tokens; begin mark 1, end mark 2, no pad token unless one is named."""
    vocabulary = {token: place for place, token in enumerate((*MARKS, *string.printable[:96]))}
    core = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = Split(Regex("."), "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", bos_token=begin, eos_token="</s>", pad_token=pad
    )


def make_model(folder: Path, *, seed: int = 0, vocabulary: int = 128) -> Path:
    """Save a Llama of two layers and its tokenizer."""
    logging.disable_progress_bar()
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=256,
        bos_token_id=1,
        eos_token_id=2,
    )
    torch.manual_seed(seed)
    LlamaForCausalLM(config).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def make_rows(path: Path, count: int = 22) -> Path:
    """Rows of unequal length in the input-output format."""
    rows = ({"input": f"say {n} {'a' * (n % 7)}", "output": "yes " * (1 + n % 5)} for n in range(count))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
