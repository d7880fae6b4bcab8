"""What a merge does to each weight of the base: decided from names alone. Pure.

Names of adapter tensors are those that peft writes: the module's name behind `base_model.model.`, then the part of the
adapter; a module that was trained as a whole has its weight under its own name.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from clockgate_trainer.errors import ConfigError

_PREFIX = "base_model.model."
_PART = re.compile(r"(.+)\.(lora_(?:A|B|embedding_A|embedding_B)|lora_magnitude_vector)(\.weight)?")
# Settings of an adapter under which its tensors mean something else than low-rank factors of a weight.
_FOREIGN = (
    "alora_invocation_tokens", "arrow_config", "kasa_config", "layer_replication", "lora_bias", "megatron_config",
    "target_parameters", "trainable_token_indices", "use_bdlora", "use_qalora",
)  # fmt: skip
# Starts that change the base's weights, so that the adapter belongs to another base than the one on disk.
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
_PEFT = "load it with peft and call merge_and_unload() instead"


class Deed(Enum):
    """What becomes of a weight. HELD: as training held it, that is quantised and dequantised where it was."""

    COPY = "copy"
    HELD = "held"
    MERGE = "merge"
    REPLACE = "replace"


@dataclass(frozen=True)
class Base:
    """Facts about the base model. Names are those of its weight files.

    `weights` are all of them, `linears` and `embeddings` modules with a weight of that kind. `quantised` are the linear
    modules that --bits quantises. `embedding` and `head` are modules; `tied`: the head has no weight of its own.
    """

    weights: frozenset[str]
    linears: frozenset[str]
    embeddings: frozenset[str]
    quantised: frozenset[str]
    embedding: str
    head: str | None
    tied: bool


@dataclass(frozen=True)
class MergePlan:
    """`deeds` for every weight of the merged model, by name; `parts` are an adapted module's tensors by their part;
    `whole` is the adapter tensor that takes a weight's place. `unties`: the head gets a weight of its own.
    """

    deeds: Mapping[str, Deed]
    parts: Mapping[str, Mapping[str, str]]
    whole: Mapping[str, str]
    unties: bool


def demand_mergeable(config: Mapping[str, object]) -> None:
    """Raise ConfigError for an adapter whose configuration means more than this program can merge."""
    kind = config.get("peft_type")
    if kind != "LORA":
        raise ConfigError(f"the adapter is of type {kind}: only LORA is merged here; {_PEFT}")
    for name in _FOREIGN:
        if config.get(name):
            raise ConfigError(f"the adapter has {name}, which is not merged here; {_PEFT}")
    start = str(config.get("init_lora_weights")).lower()
    if start.startswith(_CHANGES_BASE):
        raise ConfigError(
            f"the adapter was started with init_lora_weights {start!r}, which changes the base's own weights: convert "
            "it first (path_initial_model_for_weight_conversion of peft's save_pretrained)"
        )


def plan_merge(names: Collection[str], base: Base, *, held: bool) -> MergePlan:
    """What becomes of each weight when an adapter with tensors of these `names` is merged into `base`.

    With `held` weights that were quantised in training are taken as training saw them. Raises ConfigError when the
    adapter has a tensor that belongs nowhere.
    """
    parts: dict[str, dict[str, str]] = {}
    whole: dict[str, str] = {}
    for name in sorted(names):
        inner = name.removeprefix(_PREFIX)
        match = _PART.fullmatch(inner)
        if match:
            parts.setdefault(match[1], {})[match[2]] = name
        elif "lora_" in inner or not inner.endswith((".weight", ".bias")):
            raise ConfigError(f"the adapter holds {name}, which is not merged here; {_PEFT}")
        else:
            whole[inner] = name
    unties = base.tied and _touches_one_of_two(parts, whole, base)
    weights = base.weights | ({f"{base.head}.weight"} if unties else frozenset())
    _demand_places(parts, whole, weights, base)
    return MergePlan({name: _deed(name, parts, whole, base, held) for name in sorted(weights)}, parts, whole, unties)


def _touches_one_of_two(parts: Mapping[str, object], whole: Mapping[str, str], base: Base) -> bool:
    """Whether embedding and head, which share a weight, may differ once the adapter is merged."""
    modules = {*parts, *(name.rpartition(".")[0] for name in whole)}
    return bool(modules & {base.embedding, base.head})


def _demand_places(
    parts: Mapping[str, Mapping[str, str]], whole: Mapping[str, str], weights: Collection[str], base: Base
) -> None:
    for module, found in parts.items():
        kinds = {part for part in found if part != "lora_magnitude_vector"}
        fits = (kinds == {"lora_A", "lora_B"} and module in base.linears | {base.head}) or (
            kinds == {"lora_embedding_A", "lora_embedding_B"} and module in base.embeddings
        )
        if not fits or f"{module}.weight" not in weights:
            raise ConfigError(
                f"the adapter adapts {module} ({', '.join(sorted(found))}), which is no linear layer or embedding of "
                f"the base under that name: is it the base that the adapter was trained on? Else {_PEFT}"
            )
    for name in whole:
        if name not in weights:
            raise ConfigError(f"the adapter holds {name}, and the base has no such weight: is it the right base?")


def _deed(name: str, parts: Mapping[str, Mapping[str, str]], whole: Mapping[str, str], base: Base, held: bool) -> Deed:
    module = name.removesuffix(".weight")
    if name in whole:
        return Deed.REPLACE
    if module in parts:
        return Deed.MERGE
    return Deed.HELD if held and module in base.quantised else Deed.COPY
