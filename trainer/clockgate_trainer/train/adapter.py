"""Weights from disk into a model: the trained ones of a checkpoint, or an adapter to start from."""

from pathlib import Path
from typing import Any

from peft import PeftModel, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file

from clockgate_trainer.checkpoint.digest import digest_tensors
from clockgate_trainer.checkpoint.files import HOST
from clockgate_trainer.checkpoint.manifest import Manifest
from clockgate_trainer.checkpoint.verify import read_manifest
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.train.trained import trained_tensors
from clockgate_trainer.train.whole import load_whole

ADAPTER_FILE = "adapter_model.safetensors"


def load_adapter(model: Any, checkpoint: Path) -> None:
    """Put the trained weights of a verified checkpoint into `model`: its adapter, or all of them.

    Raises ConfigError when the model is not exactly the one that was saved then.
    """
    manifest = read_manifest(checkpoint, HOST)
    if isinstance(model, PeftModel):
        _load_adapter(model, checkpoint)
    else:
        load_whole(model, checkpoint)
    digest = digest_tensors(trained_tensors(model))
    if not isinstance(manifest, Manifest) or digest != manifest.adapter_sha256:
        raise ConfigError(
            f"the weights in {checkpoint} do not fill this model exactly: the model or its --lora_ flags are others "
            "than when it was saved. Give the old ones, or another --output_dir"
        )


def _load_adapter(model: Any, checkpoint: Path) -> None:
    try:
        found = load_file(checkpoint / ADAPTER_FILE)
        set_peft_model_state_dict(model, found)
    except (OSError, SafetensorError, RuntimeError) as err:
        raise ConfigError(f"the adapter in {checkpoint} cannot be loaded: {err}. Resume from another one") from err


def start_from(model: Any, folder: Path) -> None:
    """Put an adapter of this program or of peft into `model`. Raises ConfigError when it does not fit."""
    try:
        found = load_file(folder / ADAPTER_FILE)
        result = set_peft_model_state_dict(model, found)
    except (OSError, SafetensorError, RuntimeError) as err:
        raise ConfigError(
            f"--init_adapter {folder} cannot be loaded: {err}. Wanted a folder with {ADAPTER_FILE}, made with the same "
            "--lora_r and --lora_modules"
        ) from err
    # peft names the base's own weights as missing, which they are meant to be.
    trained = set(trained_tensors(model))
    missing = sorted(name for name in result.missing_keys if name in trained)
    if missing or result.unexpected_keys:
        odd = missing or sorted(result.unexpected_keys)
        raise ConfigError(
            f"--init_adapter {folder} does not fit the model: {len(odd)} weights are in one of the two only, the first "
            f"is {odd[0]}. Give the --lora_ flags and --modules_to_save that it was made with"
        )
