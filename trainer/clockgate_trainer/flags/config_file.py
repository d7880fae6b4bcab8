"""Run files: the flags of a run as YAML, one key per flag. Pure but for reading the file.

A key means what the flag of that name means, other spellings included, and a value what the same text means behind the
flag: `save_strategy: no` is the word no, which YAML 1.1 would take for false. Flags on the command line win. Keys of
other trainers' run files that have no counterpart are refused with the reason.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from clockgate_trainer.errors import UsageError
from clockgate_trainer.flags.table import Settings

_SCALARS = (bool, int, float, str)
# Written nowhere: a run file is kept, shared and committed. The webhook's address is the right to post there.
_SECRET: Mapping[str, str] = {"alert_webhook": "set CLOCKGATE_ALERT_WEBHOOK where the run starts"}
# Keys of axolotl's and TRL's files that people try first.
_FOREIGN: Mapping[str, str] = {
    "base_model": "use model_name_or_path",
    "model_type": "the model's own configuration says it",
    "tokenizer_type": "the tokenizer is the model's own",
    "datasets": "use dataset, with NAME:WEIGHT,NAME:WEIGHT for several, and dataset_format",
    "dataset_prepared_path": "use token_cache",
    "val_set_size": "evaluation is a command of its own, after the run",
    "sequence_len": "use source_max_len and target_max_len, or pack_length with packing",
    "max_seq_length": "use source_max_len and target_max_len, or pack_length with packing",
    "max_length": "use source_max_len and target_max_len, or pack_length with packing",
    "sample_packing": "use packing",
    "pad_to_sequence_len": "packed rows always have a constant length",
    "adapter": "the adapter is always LoRA; bits says how the base is held",
    "lora_target_linear": "use lora_modules: all",
    "micro_batch_size": "use per_device_train_batch_size",
    "num_epochs": "use num_train_epochs",
    "optimizer": "use optim",
    "lr_scheduler": "use lr_scheduler_type",
    "flash_attention": "attention is torch's own; packed rows use its variable-length kernel on CUDA",
    "xformers_attention": "attention is torch's own",
    "eager_attention": "attention is torch's own",
    "wandb_project": "use report_to: wandb, and WANDB_PROJECT in the environment",
    "wandb_entity": "use report_to: wandb, and WANDB_ENTITY in the environment",
    "special_tokens": "the tokenizer's own are used, and padding is masked by position",
    "chat_template_jinja": "write the template to a file and use chat_template",
    "assistant_only_loss": "chats always learn the assistant's turns alone; train_on_source learns all",
    "completion_only_loss": "prompts are never learned, unless train_on_source",
    "dataset_text_field": "use dataset_format: oasst1, which learns a column called text",
    "peft_use_dora": "use use_dora",
    "use_peft": "the adapter is always LoRA",
}


def words_of(path: Path) -> list[str]:
    """The command-line words that a run file stands for. Raises UsageError that names file and key."""
    table = _read(path)
    words: list[str] = []
    for key, value in table.items():
        if not isinstance(key, str):
            raise UsageError(f"{path}: the key {key!r} is no name: wanted flags without their dashes")
        if key in _FOREIGN and key not in _OWN:
            raise UsageError(f"{path}: {key} is not supported, because here you {_reason(_FOREIGN[key])}")
        if value is None:
            continue
        words += [f"--{key}", _text(path, key, value)]
    return words


def text_of(settings: Settings) -> str:
    """A run file with every flag that gives exactly `settings` again, but for secrets, which a comment names."""
    table: dict[str, object] = {}
    left_out = ""
    for field in fields(Settings):
        value = getattr(settings, field.name)
        if field.name in _SECRET and value is not None:
            left_out += f"# {field.name} is secret and not written: {_SECRET[field.name]}\n"
        else:
            table[field.name] = str(value) if isinstance(value, Path) else value
    return left_out + yaml.safe_dump(table, sort_keys=False, allow_unicode=True, width=120)


_OWN = frozenset(field.name for field in fields(Settings))


def _reason(sentence: str) -> str:
    return sentence if sentence.startswith("use ") else f"cannot choose it: {sentence}"


def _read(path: Path) -> Mapping[Any, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise UsageError(f"--config {path} cannot be read: {err}") from err
    try:
        table = yaml.load(text, Loader=_PlainLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as err:
        raise UsageError(f"--config {path} is not YAML: {' '.join(str(err).split())}") from err
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise UsageError(f"--config {path} holds a {type(table).__name__}: wanted flags, as in 'lora_r: 64'")
    return table


def _text(path: Path, key: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, _SCALARS):
        return str(value)
    if isinstance(value, Sequence) and all(isinstance(each, _SCALARS) for each in value):
        return ",".join(str(each) for each in value)
    if isinstance(value, dict):
        return repr(value)
    raise UsageError(f"{path}: {key} is {value!r}: wanted a number, a text, true or false")


class _PlainLoader(yaml.SafeLoader):
    """YAML's safe loader without its traps: yes, no, on, off, dates, octal and base-60 numbers stay text, and a key
    that is there twice, of which the safe loader silently takes the last, is refused.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Raise ConstructorError for a key that is there twice."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key_node.value} is there twice", key_node.start_mark
                )
            seen.add(str(key_node.value))
        return super().construct_mapping(node, deep)


_PlainLoader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
):
    _PlainLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first))
