"""Makes what the demo trains on: a tiny Llama with random weights and a real tokenizer, and real question-answer pairs.

The tokenizer is the SentencePiece v1 file of the package mistral-common (32,000 pieces), the text the English dialogues
of the package chatterbot-corpus. Nothing is downloaded.

    python examples/demo/tiny.py --model runs/demo/model --data runs/demo/pairs.jsonl
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.resources import as_file, files
from itertools import pairwise
from pathlib import Path

import torch
import yaml
from transformers import LlamaConfig, LlamaForCausalLM, LlamaTokenizer
from transformers.utils import logging

HIDDEN = 64
LAYERS = 2


def make_model(folder: Path, seed: int) -> None:
    """Save the model and its tokenizer into `folder`; equal seeds give equal weights."""
    tokenizer = _tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(seed)
    logging.disable_progress_bar()
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_dialogues(path: Path) -> int:
    """Write the dialogues as rows with the columns input and output; returns how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with path.open("w", encoding="utf-8") as out:
        for asked, answered in _dialogue_turns():
            out.write(json.dumps({"input": asked, "output": answered}, ensure_ascii=False) + "\n")
            count += 1
    return count


def _tokenizer() -> LlamaTokenizer:
    pieces = files("mistral_common") / "data" / "tokenizer.model.v1"
    with tempfile.TemporaryDirectory() as folder, as_file(pieces) as source:
        # The library finds the file by this name only.
        shutil.copy(source, Path(folder) / "tokenizer.model")
        tokenizer: LlamaTokenizer = LlamaTokenizer.from_pretrained(folder)
    return tokenizer


def _dialogue_turns() -> Iterator[tuple[str, str]]:
    """Each turn with the turn that answers it, in the order of the package's files."""
    with as_file(files("chatterbot_corpus") / "data" / "english") as folder:
        for file in sorted(folder.glob("*.yml")):
            for turns in yaml.safe_load(file.read_text(encoding="utf-8"))["conversations"]:
                for asked, answered in pairwise(turns):
                    if isinstance(asked, str) and isinstance(answered, str) and asked.strip() and answered.strip():
                        yield asked.strip(), answered.strip()


def main(argv: Sequence[str] | None = None) -> int:
    """Write the model folder and the data file named on the command line."""
    parser = argparse.ArgumentParser(description="Make the demo's tiny model and its training pairs.")
    parser.add_argument("--model", type=Path, required=True, help="folder for the model and its tokenizer")
    parser.add_argument("--data", type=Path, required=True, help=".jsonl file for the pairs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights (default: 0)")
    options = parser.parse_args(argv)
    make_model(options.model, options.seed)
    count = make_dialogues(options.data)
    print(f"{options.model}: Llama of {LAYERS} layers, hidden {HIDDEN}; {options.data}: {count} pairs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
