"""The model of a run: a frozen base, quantised by bitsandbytes, with a LoRA adapter of peft on its linear layers.

Adapter weights are float32 whatever is computed in: an update of a late step is smaller than a bfloat16 weight can take
up. Norms are float32 as in qlora.py; embeddings and head are held as --bits and the compute type say. With
--full_finetune there is no adapter, and every weight of the base is trained.
"""

import logging
import warnings
from typing import Any

import torch
import torch.distributed as dist
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig

from clockgate_trainer.data.tokens import TokenData
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.modules import ALL, choice, is_pattern, names_in
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.hub import CONFIG_ERRORS, hub_arguments
from clockgate_trainer.train.adapter import start_from
from clockgate_trainer.train.attention import check_packing, use_varlen
from clockgate_trainer.train.placement import Placement, place_model
from clockgate_trainer.train.precision import compute_dtype, held_dtype
from clockgate_trainer.train.whole import make_savable

_log = logging.getLogger(__name__)


def check_model(settings: Settings, data: TokenData) -> None:
    """Read the model's configuration alone and compare it with the data. Raises ConfigError."""
    name = settings.model_name_or_path
    try:
        config = AutoConfig.from_pretrained(name, **hub_arguments(settings))
    except CONFIG_ERRORS as err:
        raise ConfigError(f"the model {name} cannot be read: {err}. Check --model_name_or_path") from err
    if settings.packing:
        check_packing(config)
    size = config.get_text_config().vocab_size
    if data.largest_id >= size:
        raise ConfigError(
            f"the tokenizer of {name} gives token {data.largest_id}, the model knows 0 to {size - 1}: "
            "tokenizer and model do not belong together"
        )


def build_model(settings: Settings, device: torch.device) -> Any:
    """Load the base onto `device`, or where --device_map wants it, freeze it, and add the adapter.

    The adapter's start follows from --seed alone, so it is equal on all ranks. With --full_finetune the base is what is
    trained. Raises ConfigError when the weights cannot be loaded or --lora_modules names nothing.
    """
    placement = place_model(settings, device, dist.get_world_size() if dist.is_initialized() else 1)
    if placement.note:
        _log.info("%s", placement.note)
    base = load_base(settings, placement)
    if settings.packing and compute_dtype(settings) is not torch.float32 and device.type == "cuda":
        use_varlen(base)
    if settings.full_finetune:
        make_savable(settings, base)
        if held_dtype(settings) is torch.float32:
            raise_norms(base, compute_dtype(settings))
        model = base
    else:
        base.config.use_cache = False
        base.requires_grad_(False)
        raise_norms(base, compute_dtype(settings))
        model = _adapt(base, settings)
    if settings.gradient_checkpointing:
        # Renamed between transformers 5.17 and 5.24. The reentrant kind marks parameters ready twice under DDP.
        enable = getattr(base, "activation_checkpointing_enable", None) or base.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    model.train()
    return model


def adapted_modules(base: Any, wanted: str) -> list[str] | str:
    """What peft is to adapt: leaf names of linear layers, or a pattern for whole names.

    Raises ConfigError when `wanted`, the value of --lora_modules, names a layer that is not there, or none.
    """
    head = base.get_output_embeddings()
    # The quantised layers of bitsandbytes are subclasses of Linear.
    found = [
        name for name, module in base.named_modules() if isinstance(module, torch.nn.Linear) and module is not head
    ]
    leaves = sorted({name.rpartition(".")[2] for name in found})
    if not found:
        raise ConfigError(f"the model {type(base).__name__} has no linear layers to put an adapter on")
    if wanted == ALL:
        return leaves
    if is_pattern(wanted):
        if not any(map(choice(wanted), found)):
            raise ConfigError(
                f"--lora_modules {wanted!r} fits none of the model's linear layers, such as {found[0]}: a pattern must "
                "fit the whole name"
            )
        return wanted
    unknown = sorted(set(names_in(wanted)) - set(leaves))
    if unknown:
        raise ConfigError(
            f"--lora_modules names {', '.join(unknown)}: the model's linear layers are {', '.join(leaves)}"
        )
    return sorted(set(names_in(wanted)))


def raise_norms(base: Any, dtype: torch.dtype) -> None:
    """Keep norms in float32 and hand their results on in `dtype`.

    The layers after a norm compute in `dtype` anyway; left in float32, their results and all that backward keeps of
    them would be float32 too, a third more memory for nothing.
    """
    for module in base.modules():
        if "norm" in type(module).__name__.lower():
            module.to(torch.float32)
            if dtype is not torch.float32:
                module.register_forward_hook(lambda _module, _inputs, result: result.to(dtype))


def load_base(settings: Settings, placement: Placement) -> Any:
    """The base model where `placement` puts it, quantised by --bits; nothing else is done to it. Raises ConfigError."""
    name = settings.model_name_or_path
    # Its types do not know the second half that output_loading_info adds.
    load: Any = AutoModelForCausalLM.from_pretrained
    try:
        base, report = load(
            name,
            output_loading_info=True,
            dtype=held_dtype(settings),
            device_map=dict(placement.modules),
            quantization_config=_quantization(settings),
            **hub_arguments(settings),
        )
    except torch.OutOfMemoryError:
        raise
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as err:
        raise ConfigError(f"the weights of {name} cannot be loaded: {err}. Check --model_name_or_path") from err
    missing = sorted(report["missing_keys"])
    if missing:
        # transformers fills them with random numbers: an adapter on such a base is worth nothing.
        raise ConfigError(
            f"the model {name} lacks {len(missing)} weights, the first is {missing[0]}: its configuration and its "
            "weight files do not belong together. Check --model_name_or_path"
        )
    return base


def _adapt(base: Any, settings: Settings) -> PeftModel:
    config = LoraConfig(
        r=settings.lora_r,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=adapted_modules(base, settings.lora_modules),
        modules_to_save=_whole_modules(base, settings.modules_to_save),
        use_rslora=settings.use_rslora,
        use_dora=settings.use_dora,
        bias="none",
        task_type="CAUSAL_LM",
    )
    torch.manual_seed(settings.seed)
    with warnings.catch_warnings():
        # peft asks transformers 5.24 under the old name.
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        model = get_peft_model(base, config)
    for tensor in model.parameters():
        if tensor.requires_grad:
            # Modules that are trained as a whole come in the base's type.
            tensor.data = tensor.data.float()
    if compute_dtype(settings) is not torch.float32:
        # The forward runs under autocast, which casts by itself: a float32 copy in between would only cost memory.
        for module in model.modules():
            if isinstance(module, BaseTunerLayer):
                module.cast_input_dtype_enabled = False
    if settings.init_adapter is not None:
        start_from(model, settings.init_adapter)
    return model


def _whole_modules(base: Any, wanted: str | None) -> list[str] | None:
    if wanted is None:
        return None
    names = names_in(wanted)
    leaves = {name.rpartition(".")[2] for name, _ in base.named_modules()}
    unknown = sorted(set(names) - leaves)
    if unknown:
        raise ConfigError(
            f"--modules_to_save names {', '.join(unknown)}: the model has no such module; wanted for example lm_head "
            "or embed_tokens"
        )
    return list(names)


def _quantization(settings: Settings) -> BitsAndBytesConfig | None:
    if settings.bits == 4:
        return BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type=settings.quant_type,
            bnb_4bit_use_double_quant=settings.double_quant,
            bnb_4bit_compute_dtype=compute_dtype(settings),
        )
    if settings.bits == 8:
        return BitsAndBytesConfig(load_in_8bit=True)
    return None
