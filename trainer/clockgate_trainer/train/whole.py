"""All weights of a model to and from a checkpoint: safetensors that plain transformers loads, with the tokenizer."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM

from clockgate_trainer.data.tokenizer import load_tokenizer
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.table import Settings

# Files of a size that every file system and every transfer between nodes takes.
SHARD_BYTES = 4_000_000_000
tokenizer_of = lru_cache(maxsize=1)(load_tokenizer)


def make_savable(settings: Settings, model: Any) -> None:
    """Find out before training whether model and tokenizer can be written. Raises ConfigError.

    A generation configuration that contradicts itself, as some published ones do, is loaded with a warning and refused
    when it is written: its sampling numbers are then taken to mean that it samples.
    """
    tokenizer_of(settings)
    generation = getattr(model, "generation_config", None)
    if generation is None:
        return
    try:
        generation.validate(strict=True)
    except ValueError:
        generation.do_sample = True
        try:
            generation.validate(strict=True)
        except ValueError as err:
            raise ConfigError(
                f"the generation_config.json of {settings.model_name_or_path} contradicts itself, so no checkpoint "
                f"could hold it: {err}. Mend or remove the file"
            ) from err


def save_whole(settings: Settings, model: Any, folder: Path, tensors: Mapping[str, torch.Tensor] | None) -> None:
    """Write model and tokenizer; `tensors` are copies of the trained weights, to be taken in place of the model's."""
    given: dict[str, Any] = {}
    if tensors is not None:
        persistent = model.state_dict().keys()
        given["state_dict"] = {name: each for name, each in model.named_buffers() if name in persistent} | dict(tensors)
    model.save_pretrained(folder, max_shard_size=SHARD_BYTES, **given)
    tokenizer_of(settings).save_pretrained(folder)


def load_whole(model: Any, checkpoint: Path) -> None:
    """Put all weights of a checkpoint into `model`, without comparing them. Raises ConfigError."""
    load: Any = AutoModelForCausalLM.from_pretrained
    try:
        saved = dict(load(checkpoint, dtype=model.dtype, device_map={"": "cpu"}).named_parameters())
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as err:
        raise ConfigError(f"the weights in {checkpoint} cannot be loaded: {err}. Resume from another one") from err
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name in saved and saved[name].shape == weight.shape:
                weight.copy_(saved[name])
