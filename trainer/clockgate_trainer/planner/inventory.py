"""Reads a model's shape off its configuration: the model is built without storage, and its modules are counted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.hub import CONFIG_ERRORS, hub_arguments
from clockgate_trainer.planner.known import known_config
from clockgate_trainer.planner.modules import Modules
from clockgate_trainer.planner.shape import Linear, Shape


def read_config(settings: Settings) -> tuple[PretrainedConfig, bool]:
    """The configuration of --model_name_or_path, and whether it comes from the table of published models.

    Of other models the config.json alone is read, from a folder or the hub. Raises ConfigError when it cannot be.
    """
    name = settings.model_name_or_path
    known = known_config(name)
    if known is not None and not Path(name).exists():
        return AutoConfig.for_model(**known), True
    try:
        return AutoConfig.from_pretrained(name, **hub_arguments(settings)), False
    except CONFIG_ERRORS as err:
        raise ConfigError(
            f"the configuration of {name} cannot be read: {err}. Give --model_name_or_path a folder with a "
            "config.json, or a hub id that this machine can reach"
        ) from err


class Inventory:
    """The modules of the model that `config` describes; no weight is allocated. Raises ConfigError."""

    def __init__(self, config: PretrainedConfig) -> None:
        self._config = config
        self._model = _without_storage(config)

    def shape(self) -> Shape:
        """Their sizes. Raises ConfigError."""
        return _shape(self._config, self._model)

    def modules(self) -> Modules:
        """Names of those that a device map must place. Raises ConfigError."""
        return _modules(self._config, self._model)


def read_shape(config: PretrainedConfig) -> Shape:
    """The sizes alone of the model that `config` describes. Raises ConfigError."""
    return Inventory(config).shape()


def _shape(config: PretrainedConfig, model: Any) -> Shape:
    text = config.get_text_config()
    layers = text.num_hidden_layers
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    kinds: dict[tuple[str, int, int], list[str]] = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and module is not head:
            kind = (name.rpartition(".")[2], module.in_features, module.out_features)
            kinds.setdefault(kind, []).append(name)
    uneven = [name for (name, _, _), paths in kinds.items() if len(paths) % layers]
    if uneven or not kinds:
        raise ConfigError(
            f"a model of type {config.model_type} cannot be planned: its layers differ in {', '.join(uneven)}"
        )
    linears = tuple(
        Linear(name, inputs, outputs, len(paths) // layers, tuple(paths))
        for (name, inputs, outputs), paths in kinds.items()
    )
    tied = head is None or head.weight is embedding.weight
    head_weights = 0 if tied else head.weight.numel()
    counted = embedding.weight.numel() + head_weights + layers * sum(linear.weights for linear in linears)
    heads = text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // heads
    return Shape(
        architecture=config.model_type,
        layers=layers,
        hidden=text.hidden_size,
        key_value=width * (getattr(text, "num_key_value_heads", None) or heads),
        vocabulary=text.vocab_size,
        linears=linears,
        embedding=embedding.weight.numel(),
        head=head_weights,
        other=sum(parameter.numel() for parameter in model.parameters()) - counted,
    )


def _modules(config: PretrainedConfig, model: Any) -> Modules:
    count = config.get_text_config().num_hidden_layers
    name_of = {module: name for name, module in model.named_modules()}
    stacks = [
        name for module, name in name_of.items() if isinstance(module, torch.nn.ModuleList) and len(module) == count
    ]
    if len(stacks) != 1:
        raise ConfigError(f"a model of type {config.model_type} cannot be split: it has {len(stacks)} stacks of layers")
    layers = tuple(f"{stacks[0]}.{number}" for number in range(count))
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = head is not None and head.weight is embedding.weight
    return Modules(
        layers=layers,
        embedding=name_of[embedding],
        others=tuple(_outside(model, {stacks[0], name_of[embedding]})),
        tied_head=name_of[head] if tied else None,
    )


def _outside(module: torch.nn.Module, inner: set[str], prefix: str = "") -> Iterator[str]:
    """Names of the largest modules that hold none of `inner`."""
    for child_name, child in module.named_children():
        name = prefix + child_name
        if name in inner:
            continue
        if any(each.startswith(f"{name}.") for each in inner):
            yield from _outside(child, inner, f"{name}.")
        else:
            yield name


def _without_storage(config: PretrainedConfig) -> Any:
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config)
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise ConfigError(f"a model of type {config.model_type} cannot be planned: {err}") from err
