"""The base model on disk: its weights one by one, whatever files they are in, and what its modules are."""

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForCausalLM

from clockgate_trainer.errors import ConfigError
from clockgate_trainer.export.plan import Base
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.hub import CONFIG_ERRORS, hub_arguments

_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.py")
_NAMES = ("model.safetensors", "pytorch_model.bin")
_ANOTHER = "Fetch the base again, or give another --model_name_or_path"


def base_folder(settings: Settings) -> Path:
    """The folder of --model_name_or_path; one of the hub is fetched. Raises ConfigError."""
    path = Path(settings.model_name_or_path)
    if path.is_dir():
        return path
    hub = hub_arguments(settings)
    try:
        found = snapshot_download(
            str(path), allow_patterns=list(_FILES), cache_dir=hub["cache_dir"], token=hub["token"]
        )
    except (OSError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, ValueError) as err:
        raise ConfigError(
            f"the base {path} is no folder and cannot be fetched from the hub: {err}. Give --model_name_or_path"
        ) from err
    return Path(found)


class WeightFiles:
    """The weights of a folder: safetensors, or what torch.save wrote. Holds none of them in memory."""

    def __init__(self, folder: Path) -> None:
        """Raises ConfigError when there are no weight files or one cannot be read."""
        self._folder = folder
        self._file_of = _index(folder)
        self._loaded: tuple[str, Mapping[str, torch.Tensor]] | None = None

    @property
    def names(self) -> frozenset[str]:
        """Of all weights."""
        return frozenset(self._file_of)

    def load(self, name: str) -> torch.Tensor:
        """One weight, on the CPU. Raises ConfigError."""
        file = self._file_of[name]
        try:
            if file.endswith(".safetensors"):
                with safe_open(self._folder / file, framework="pt") as found:
                    weight: torch.Tensor = found.get_tensor(name)
                    return weight
            return self._mapped(file)[name]
        except (OSError, SafetensorError, KeyError) as err:
            raise self._unreadable(name, err) from err

    def look(self, name: str) -> tuple[torch.Size, torch.dtype]:
        """Shape and type of a weight, of which at most one row is read. Raises ConfigError."""
        file = self._file_of[name]
        if not file.endswith(".safetensors"):
            weight = self.load(name)
            return weight.shape, weight.dtype
        try:
            with safe_open(self._folder / file, framework="pt") as found:
                part = found.get_slice(name)
                shape = torch.Size(part.get_shape())
            return shape, (part[:1] if shape else self.load(name)).dtype
        except (OSError, SafetensorError) as err:
            raise self._unreadable(name, err) from err

    def _unreadable(self, name: str, error: Exception) -> ConfigError:
        return ConfigError(f"{name} cannot be read from {self._folder / self._file_of[name]}: {error}. {_ANOTHER}")

    def _mapped(self, file: str) -> Mapping[str, torch.Tensor]:
        if self._loaded is None or self._loaded[0] != file:
            self._loaded = (file, _map_pickle(self._folder / file))
        return self._loaded[1]


def describe(settings: Settings, folder: Path, weights: WeightFiles) -> tuple[Any, Base]:
    """The base's configuration and the facts that a plan needs. No weight is allocated. Raises ConfigError."""
    trusts = settings.trust_remote_code
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=trusts)
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=trusts)
    except (*CONFIG_ERRORS, AttributeError) as err:
        raise ConfigError(f"{folder} describes no causal language model: {err}") from err
    name_of = {module: name for name, module in model.named_modules()}
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    linears = {name for module, name in name_of.items() if isinstance(module, torch.nn.Linear)}
    tied = head is not None and head.weight is embedding.weight
    head_name = None if head is None else name_of[head]
    names = weights.names - ({f"{head_name}.weight"} if tied else frozenset())
    base = Base(
        weights=names,
        linears=frozenset(linears),
        embeddings=frozenset(name for module, name in name_of.items() if isinstance(module, torch.nn.Embedding)),
        quantised=frozenset(linears - {head_name}) if settings.bits < 16 else frozenset(),
        embedding=name_of[embedding],
        head=head_name,
        tied=tied,
    )
    return config, base


def _index(folder: Path) -> Mapping[str, str]:
    try:
        for name in _NAMES:
            index = folder / f"{name}.index.json"
            if index.exists():
                return dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
            if (folder / name).exists():
                return dict.fromkeys(_names_in(folder / name), name)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as err:
        raise ConfigError(f"the weights in {folder} cannot be read: {err}") from err
    raise ConfigError(f"{folder} holds no weights: wanted model.safetensors or pytorch_model.bin, or their index")


def _names_in(path: Path) -> list[str]:
    if path.suffix == ".safetensors":
        with safe_open(path, framework="pt") as found:
            return list(found.keys())
    return list(_map_pickle(path))


def _map_pickle(path: Path) -> Mapping[str, torch.Tensor]:
    try:
        found: Mapping[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as err:
        cause = next(iter(str(err).splitlines()), type(err).__name__)
        raise ConfigError(f"{path} cannot be read: {cause}. {_ANOTHER}") from err
    return found
