"""Other spellings of flags: of older and newer transformers, and of other trainers' habits. Pure.

Each gives the words that it stands for and a notice that says so.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

_TYPOGRAPHIC = re.compile(r"^[\N{EN DASH}\N{EM DASH}]{1,2}([a-z]\w*(?:=.*)?)$", re.DOTALL)


class Spelled(NamedTuple):
    """What a foreign flag stands for: `words` in this trainer's own flags, and a sentence for the person."""

    words: tuple[str, ...]
    notice: str


def respell(name: str, value: str | None) -> Spelled | None:
    """The own words for `--name value`; None when `name` is no other spelling of anything."""
    if name == "warmup_steps":
        return _fraction(value)
    if name in _RENAMED:
        return _renamed(name, _RENAMED[name], value)
    if name in _RULES:
        return _RULES[name](value)
    return None


def straighten(word: str) -> str:
    """`word` with the dashes of a flag where a page's typography put an en or em dash, as in qlora.py's README."""
    return _TYPOGRAPHIC.sub(r"--\1", word)


def other_spellings() -> tuple[str, ...]:
    """All foreign names that are understood."""
    return (*_RENAMED, *_RULES)


def _renamed(name: str, own: str, value: str | None) -> Spelled:
    words = (f"--{own}",) if value is None else (f"--{own}", value)
    return Spelled(words, f"--{name} is read as --{own}")


def _fraction(value: str | None) -> Spelled | None:
    """Transformers 5 takes a number of steps below 1 for a share of them; whole numbers are --warmup_steps itself."""
    try:
        share = float(value or "")
    except ValueError:
        return None
    if not 0 < share < 1:
        return None
    return Spelled(("--warmup_ratio", str(value)), f"--warmup_steps {value} is read as --warmup_ratio {value}")


def _cpu(value: str | None) -> Spelled:
    if value is None or value.lower() in ("true", "1", "yes"):
        return Spelled(("--device", "cpu"), "--use_cpu is read as --device cpu")
    return Spelled((), "--use_cpu false is the default: --device auto")


def _sampling(value: str | None) -> Spelled:
    grouped = "true" if value == "group_by_length" else "false"
    return Spelled(
        ("--group_by_length", grouped), f"--train_sampling_strategy {value} is read as --group_by_length {grouped}"
    )


def _dtype(value: str | None) -> Spelled:
    if value in ("float16", "fp16", "half"):
        return Spelled(("--fp16", "true"), f"--torch_dtype {value} is read as --fp16 true")
    wide = "true" if value in ("bfloat16", "bf16") else "false"
    return Spelled(("--bf16", wide), f"--torch_dtype {value} is read as --bf16 {wide}")


def _adam8bit(value: str | None) -> Spelled:
    if value is None or value.lower() in ("true", "1", "yes"):
        return Spelled(
            ("--optim", "adamw_8bit"),
            "--adam8bit is read as --optim adamw_8bit (qlora.py declares it and trains with --optim all the same)",
        )
    return Spelled((), "--adam8bit false changes nothing: --optim decides")


def _load_in(bits: str) -> Callable[[str | None], Spelled]:
    def rule(value: str | None) -> Spelled:
        if value is None or value.lower() in ("true", "1", "yes"):
            return Spelled(("--bits", bits), f"--load_in_{bits}bit is read as --bits {bits}")
        return Spelled((), f"--load_in_{bits}bit false changes nothing: --bits decides")

    return rule


_RENAMED: Mapping[str, str] = {
    "evaluation_strategy": "eval_strategy",
    "activation_checkpointing": "gradient_checkpointing",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "run_name": "job_name",
    "full_determinism": "deterministic",
    "lora_target_modules": "lora_modules",
    "model_name": "model_name_or_path",
    "generation_num_beams": "num_beams",
    "hf_token": "use_auth_token",
    "bnb_4bit_quant_type": "quant_type",
    "bnb_4bit_use_double_quant": "double_quant",
}
_RULES: Mapping[str, Callable[[str | None], Spelled]] = {
    "adam8bit": _adam8bit,
    "use_cpu": _cpu,
    "no_cuda": _cpu,
    "train_sampling_strategy": _sampling,
    "torch_dtype": _dtype,
    "dtype": _dtype,
    "load_in_4bit": _load_in("4"),
    "load_in_8bit": _load_in("8"),
}
