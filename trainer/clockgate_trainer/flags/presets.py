"""Named recipes: the published Guanaco scripts, and the table of the deployment guide that is quoted in docs. Pure.

Flags of the command line win over a preset. The two families differ: see docs/training.md.
"""

import difflib
from collections.abc import Mapping

from clockgate_trainer.errors import UsageError

# What all of qlora.py's finetune_guanaco scripts share.
_GUANACO: Mapping[str, str] = {
    "dataset": "oasst1",
    "source_max_len": "16",
    "target_max_len": "512",
    "max_steps": "1875",
    "per_device_train_batch_size": "1",
    "gradient_accumulation_steps": "16",
    "lr_scheduler_type": "constant",
    "warmup_ratio": "0.03",
    "adam_beta2": "0.999",
    "max_grad_norm": "0.3",
    "weight_decay": "0.0",
    "lora_r": "64",
    "lora_alpha": "16",
    "lora_modules": "all",
    "bits": "4",
    "quant_type": "nf4",
    "double_quant": "true",
    "bf16": "true",
    "group_by_length": "true",
    "gradient_checkpointing": "true",
    "logging_steps": "10",
    "save_strategy": "steps",
    "save_total_limit": "40",
    "max_new_tokens": "32",
    "seed": "0",
    "data_seed": "42",
}
# The guide names a warm-up for each size, which a constant schedule would ignore.
_SEED: Mapping[str, str] = {
    "bits": "4",
    "quant_type": "nf4",
    "double_quant": "true",
    "bf16": "true",
    "lora_r": "64",
    "lora_alpha": "16",
    "lr_scheduler_type": "constant_with_warmup",
    "per_device_train_batch_size": "1",
    "dataset": "oasst1",
}


def _guanaco(size: str, learning_rate: str, dropout: str, save_steps: str) -> Mapping[str, str]:
    model = {"model_name_or_path": f"huggyllama/llama-{size}"}
    own = {"learning_rate": learning_rate, "lora_dropout": dropout, "save_steps": save_steps}
    return {**_GUANACO, **model, **own}


def _seed(size: str, learning_rate: str, warmup: str, accumulation: str) -> Mapping[str, str]:
    model = {"model_name_or_path": f"huggyllama/llama-{size}"}
    own = {"learning_rate": learning_rate, "warmup_ratio": warmup, "gradient_accumulation_steps": accumulation}
    return {**_SEED, **model, **own}


# The model that is called 33B has 30b in its hub name.
PRESETS: Mapping[str, Mapping[str, str]] = {
    "guanaco-7b": _guanaco("7b", "0.0002", "0.1", "500"),
    "guanaco-13b": _guanaco("13b", "0.0002", "0.05", "500"),
    "guanaco-33b": _guanaco("30b", "0.0001", "0.05", "200"),
    "guanaco-65b": _guanaco("65b", "0.0001", "0.05", "200"),
    "seed-7b": _seed("7b", "0.0002", "0.03", "16"),
    "seed-13b": _seed("13b", "0.0001", "0.05", "32"),
    # The guide gives no accumulation for this size; that of the next smaller one is taken.
    "seed-33b": _seed("30b", "0.00005", "0.08", "32"),
    "seed-65b": _seed("65b", "0.00001", "0.1", "64"),
}


def preset_words(name: str) -> list[str]:
    """The command-line words of a preset. Raises UsageError."""
    found = PRESETS.get(name)
    if found is None:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"--preset is {name!r}: wanted one of {', '.join(PRESETS)}{hint}")
    return [word for flag, value in found.items() for word in (f"--{flag}", value)]
