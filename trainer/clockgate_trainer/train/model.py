"""The model of a run: a frozen base, quantised by bitsandbytes, with a LoRA adapter of peft on its linear layers.

Adapter weights are float32 even under --bf16: an update of a late step is smaller than a bfloat16 weight can take up.
Norms are float32 as in qlora.py; embeddings and head follow --bf16.
"""

import warnings
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig

from clockgate_trainer.data.tokens import TokenData
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.train.hub import hub_arguments


def check_model(settings: Settings, data: TokenData) -> None:
    """Read the model's configuration alone and compare it with the data. Raises ConfigError."""
    name = settings.model_name_or_path
    try:
        config = AutoConfig.from_pretrained(name, **hub_arguments(settings))
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise ConfigError(f"the model {name} cannot be read: {err}. Check --model_name_or_path") from err
    size = config.get_text_config().vocab_size
    if data.largest_id >= size:
        raise ConfigError(
            f"the tokenizer of {name} gives token {data.largest_id}, the model knows 0 to {size - 1}: "
            "tokenizer and model do not belong together"
        )


def build_model(settings: Settings, device: torch.device) -> PeftModel:
    """Load the base onto `device`, freeze it, and add the adapter.

    The adapter's start follows from --seed alone, so it is equal on all ranks. Raises ConfigError when the weights
    cannot be loaded or --lora_modules names nothing.
    """
    base = _load_base(settings, device)
    base.config.use_cache = False
    base.requires_grad_(False)
    for module in base.modules():
        if "norm" in type(module).__name__.lower():
            module.to(torch.float32)
    model = _adapt(base, settings)
    if settings.gradient_checkpointing:
        # Renamed between transformers 5.17 and 5.24. The reentrant kind marks parameters ready twice under DDP.
        enable = getattr(base, "activation_checkpointing_enable", None) or base.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    model.train()
    return model


def adapted_names(base: Any, wanted: str) -> list[str]:
    """Leaf names of the linear layers that get an adapter: all but the output head, or those in `wanted`."""
    head = base.get_output_embeddings()
    # The quantised layers of bitsandbytes are subclasses of Linear.
    found = {
        name.rpartition(".")[2]
        for name, module in base.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head
    }
    if not found:
        raise ConfigError(f"the model {type(base).__name__} has no linear layers to put an adapter on")
    if wanted == "all":
        return sorted(found)
    names = {name.strip() for name in wanted.split(",")}
    unknown = sorted(names - found)
    if unknown:
        raise ConfigError(
            f"--lora_modules names {', '.join(unknown)}: the model's linear layers are {', '.join(sorted(found))}"
        )
    return sorted(names)


def compute_dtype(settings: Settings) -> torch.dtype:
    """What the base computes in."""
    return torch.bfloat16 if settings.bf16 else torch.float32


def _load_base(settings: Settings, device: torch.device) -> Any:
    name = settings.model_name_or_path
    # Its types do not know the second half that output_loading_info adds.
    load: Any = AutoModelForCausalLM.from_pretrained
    try:
        base, report = load(
            name,
            output_loading_info=True,
            dtype=compute_dtype(settings),
            device_map={"": device},
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
        target_modules=adapted_names(base, settings.lora_modules),
        bias="none",
        task_type="CAUSAL_LM",
    )
    torch.manual_seed(settings.seed)
    with warnings.catch_warnings():
        # peft asks transformers 5.24 under the old name.
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        return get_peft_model(base, config)


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
