"""A trained model from disk, as training held it: the base by its flags, the adapter on top through plain peft."""

import warnings
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors import SafetensorError, safe_open

from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.train.adapter import ADAPTER_FILE
from clockgate_trainer.train.model import load_base, raise_norms
from clockgate_trainer.train.placement import Placement, place_model
from clockgate_trainer.train.precision import compute_dtype, held_dtype

TOKENIZER_FILE = "tokenizer_config.json"
_EMBEDDINGS = ("embed_tokens", "wte", "embed_in", "word_embeddings", "lm_head", "embed_out")


def load_trained(settings: Settings, device: torch.device, adapter: Path | None) -> Any:
    """The base of `settings` with the adapter in a folder, ready to be asked. Raises ConfigError.

    Where the adapter holds embeddings of more tokens than the base has, the base is grown first.
    """
    base = load_base(settings, _placement(settings, device))
    base.requires_grad_(False)
    if adapter is None:
        return base.eval()
    if held_dtype(settings) is torch.float32 or settings.bits < 16:
        raise_norms(base, compute_dtype(settings))
    rows = embedding_rows(adapter)
    if rows is not None and rows != base.get_input_embeddings().weight.shape[0]:
        base.resize_token_embeddings(rows, mean_resizing=False)
    try:
        with warnings.catch_warnings():
            # peft asks transformers 5.24 under the old name.
            warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
            model = PeftModel.from_pretrained(base, str(adapter), torch_device=str(device))
    except (OSError, SafetensorError, RuntimeError, ValueError, KeyError, TypeError) as err:
        raise ConfigError(
            f"the adapter in {adapter} does not fit {settings.model_name_or_path}: {err}. Give the base that it was "
            "trained on with --model_name_or_path"
        ) from err
    return model.eval()


def autocast_of(settings: Settings) -> torch.dtype | None:
    """The type that training computed in under autocast; None when it computed in float32."""
    dtype = compute_dtype(settings)
    return None if dtype is torch.float32 else dtype


def embedding_rows(adapter: Path) -> int | None:
    """Rows of the embedding or head that the adapter holds as a whole; None when it holds none. Raises ConfigError."""
    path = adapter / ADAPTER_FILE
    try:
        with safe_open(path, framework="pt") as found:
            for name in found.keys():  # noqa: SIM118 (no mapping)
                *_, module, kind = name.split(".")
                if kind == "weight" and module in _EMBEDDINGS:
                    return int(found.get_slice(name).get_shape()[0])
    except (OSError, SafetensorError) as err:
        raise ConfigError(f"{path} cannot be read: {err}. Wanted an adapter as peft saves it") from err
    return None


def tokenizer_folder(settings: Settings, weights: Path) -> str:
    """Where the tokenizer is: beside the weights when it was saved with them, else with the base."""
    return str(weights) if (weights / TOKENIZER_FILE).exists() else settings.model_name_or_path


def _placement(settings: Settings, device: torch.device) -> Placement:
    return place_model(settings, device, 1)
