"""Makes a model folder of a published shape with random weights, and rows of realistic lengths, for figures on a GPU.

    python bench/shaped_model.py FOLDER --model huggyllama/llama-7b --rows 4000

Weights are written shard by shard in bfloat16, so the host needs memory for one shard. Tokens are characters. The
lengths are lognormal like those of instruction data (median 167 tokens, mean 248), cut at 2,048.
"""

import argparse
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.planner.known import known_config
from safetensors.torch import save_file
from support.tiny_model import make_tokenizer
from transformers import AutoConfig, AutoModelForCausalLM

_SHARD_BYTES = 4 * 2**30
_MEDIAN_LENGTH = 167
_SIGMA = 0.89
_LONGEST = 2048
_LETTERS = "abcdefghijklmnopqrstuvwxyz     "


def main() -> None:
    """Write the folder and its rows.jsonl."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="huggyllama/llama-7b", help="a shape that clockgate-train plan knows")
    parser.add_argument("--rows", type=int, default=4000)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    known = known_config(options.model)
    if known is None:
        raise ConfigError(
            f"--model is {options.model!r}: its shape is not known; wanted for example huggyllama/llama-7b"
        )
    config = AutoConfig.for_model(**known, bos_token_id=1, eos_token_id=2)
    write_weights(options.folder, config)
    make_tokenizer().save_pretrained(options.folder)
    write_rows(options.folder / "rows.jsonl", options.rows)


def write_weights(folder: Path, config: Any) -> None:
    """Random weights of `config`'s model as safetensors shards with an index."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    places: dict[str, str] = {}
    shard: dict[str, torch.Tensor] = {}
    held = 0
    for name, wanted in model.state_dict().items():
        # Norms start at one, as in a trained model; a random one would let the loss overflow.
        ones = wanted.dim() == 1
        tensor = torch.ones(wanted.shape) if ones else torch.randn(wanted.shape, device=device).mul_(0.02)
        shard[name] = tensor.to(torch.bfloat16).cpu()
        held += shard[name].nbytes
        if held >= _SHARD_BYTES:
            places |= _write_shard(folder, shard, len(set(places.values())))
            shard, held = {}, 0
    places |= _write_shard(folder, shard, len(set(places.values())))
    index = {"metadata": {"total_size": 2 * config_size(model)}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    config.architectures = [type(model).__name__]
    config.dtype = torch.bfloat16
    config.save_pretrained(folder)


def config_size(model: Any) -> int:
    """Number of weights."""
    return sum(tensor.numel() for tensor in model.state_dict().values())


def _write_shard(folder: Path, shard: dict[str, torch.Tensor], number: int) -> dict[str, str]:
    name = f"model-{number:05d}.safetensors"
    save_file(shard, folder / name, metadata={"format": "pt"})
    return dict.fromkeys(shard, name)


def write_rows(path: Path, count: int) -> None:
    """Rows of the input-output format whose lengths in tokens are lognormal."""
    path.write_text("".join(json.dumps(row) + "\n" for row in _rows(count)), encoding="utf-8")


def _rows(count: int) -> Iterator[dict[str, str]]:
    draw = random.Random(0)
    for _ in range(count):
        length = max(8, min(_LONGEST, round(draw.lognormvariate(math.log(_MEDIAN_LENGTH), _SIGMA))))
        prompt = length // 4
        yield {"input": _text(draw, prompt), "output": _text(draw, length - prompt)}


def _text(draw: random.Random, length: int) -> str:
    return "".join(draw.choices(_LETTERS, k=length))


if __name__ == "__main__":
    main()
