"""One weight of the merged model at a time: what training held of the base, and the adapter's part on top.

The adapter learned beside a quantised base, so its part is added to the dequantised weight: merging into the full
weight, or quantising again behind the merge, moves logits about thirty times as far.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import bitsandbytes as bnb
import torch
from peft import LoraConfig, inject_adapter_in_model, set_peft_model_state_dict
from peft.utils.other import get_pattern_key
from torch import nn

from clockgate_trainer.errors import ConfigError
from clockgate_trainer.export.plan import Base, Deed, MergePlan
from clockgate_trainer.export.source import WeightFiles
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.train.precision import held_dtype

_ONE = "layer"


@dataclass(frozen=True)
class Merger:
    """Makes the weights of a plan. `tensors` are the adapter's, by the names in its file; `held`: see `plan_merge`."""

    plan: MergePlan
    base: Base
    weights: WeightFiles
    tensors: Mapping[str, torch.Tensor]
    config: LoraConfig
    settings: Settings
    device: torch.device
    held: bool

    def make(self, name: str) -> torch.Tensor:
        """The merged weight, on the CPU, in float32 where it was changed, else in its own type. Raises ConfigError."""
        deed = self.plan.deeds[name]
        if deed is Deed.REPLACE:
            return self.tensors[self.plan.whole[name]]
        weight = self._base(name)
        if deed is Deed.COPY:
            return weight
        module = name.removesuffix(".weight")
        if self.held and module in self.base.quantised:
            weight = as_held(weight, self.settings, self.device)
        if deed is Deed.MERGE:
            weight = self._add(module, weight.to(self.device, torch.float32))
        return weight.cpu()

    def on_disk(self, name: str) -> str:
        """The base's weight that `name` starts from: a head without one of its own uses the embedding's."""
        return name if name in self.weights.names else f"{self.base.embedding}.weight"

    def look(self, name: str) -> tuple[torch.Size, torch.dtype]:
        """Shape of the merged weight, and the type that it has in the base's files. Raises ConfigError."""
        shape, dtype = self.weights.look(self.on_disk(name))
        taken = self.plan.whole.get(name)
        return (shape if taken is None else self.tensors[taken].shape), dtype

    def _base(self, name: str) -> torch.Tensor:
        return self.weights.load(self.on_disk(name))

    def _add(self, module: str, weight: torch.Tensor) -> torch.Tensor:
        """The weight with the adapter's part in it, by peft's own arithmetic on a model of this one layer."""
        parts = {part: self.tensors[name] for part, name in self.plan.parts[module].items()}
        alone = nn.Module()
        alone.add_module(_ONE, _layer(weight, embeds="lora_embedding_A" in parts))
        rank = min(parts[part].shape[0] for part in parts if part.endswith("_A"))
        inject_adapter_in_model(self._config_of(module, rank), alone)
        state = {_key(part): tensor for part, tensor in parts.items()}
        try:
            result = set_peft_model_state_dict(alone, state)
        except RuntimeError as err:
            raise ConfigError(f"the adapter of {module} does not fit the base's weight: {err}") from err
        if result.unexpected_keys:
            raise ConfigError(f"the adapter of {module} has {result.unexpected_keys[0]}, which peft does not know")
        layer: Any = alone.get_submodule(_ONE)
        with torch.no_grad():
            try:
                layer.to(self.device).merge(safe_merge=True)
            except ValueError as err:
                raise ConfigError(f"{module} cannot be merged: {err}") from err
        merged: torch.Tensor = layer.get_base_layer().weight.detach()
        return merged

    def _config_of(self, module: str, rank: int) -> LoraConfig:
        pattern: Mapping[str, float] = self.config.alpha_pattern or {}
        alpha = pattern.get(get_pattern_key(list(pattern), module), self.config.lora_alpha)
        return LoraConfig(
            r=rank,
            lora_alpha=alpha,
            target_modules=[_ONE],
            use_rslora=self.config.use_rslora,
            use_dora=self.config.use_dora,
            init_lora_weights=False,
        )


def as_held(weight: torch.Tensor, settings: Settings, device: torch.device) -> torch.Tensor:
    """A linear layer's weight as training saw it: quantised by --bits and its kin and back, in float32."""
    if settings.bits == 4:
        data = weight.to(held_dtype(settings))
        packed = bnb.nn.Params4bit(
            data, requires_grad=False, quant_type=settings.quant_type, compress_statistics=settings.double_quant
        ).to(device)
        held: torch.Tensor = bnb.functional.dequantize_4bit(packed.data, packed.quant_state)
        return held.float()
    # bitsandbytes takes rows of float16 to eight bits.
    codes, scales, _ = bnb.functional.int8_vectorwise_quant(weight.to(device, torch.float16))
    rows: torch.Tensor = bnb.functional.int8_vectorwise_dequant(codes, scales)
    return rows.float()


def _layer(weight: torch.Tensor, *, embeds: bool) -> nn.Module:
    rows, columns = weight.shape
    with torch.device("meta"):
        layer = nn.Embedding(rows, columns) if embeds else nn.Linear(columns, rows, bias=False)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return layer


def _key(part: str) -> str:
    plain = part.startswith("lora_embedding") or part == "lora_magnitude_vector"
    return f"base_model.model.{_ONE}.{part}" + ("" if plain else ".weight")
