"""A merge from its parts to a model folder, and the comparison of that folder with the adapter on its base."""

import gc
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftConfig
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from clockgate_trainer.checkpoint.weights import ADAPTER_CONFIG_FILE, Weights
from clockgate_trainer.data.tokenizer import load_tokenizer
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.export.compare import Difference, difference, logits_of
from clockgate_trainer.export.merge import Merger
from clockgate_trainer.export.plan import demand_mergeable, plan_merge
from clockgate_trainer.export.reload import autocast_of, load_trained, tokenizer_folder
from clockgate_trainer.export.source import WeightFiles, base_folder, describe
from clockgate_trainer.export.write import write_rest, write_weights
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.train.adapter import ADAPTER_FILE
from clockgate_trainer.train.distributed import Place, choose_device

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class Job:
    """What is merged. `dtype` is that of the result; None: each weight keeps the type that it has in the base."""

    weights: Weights
    settings: Settings
    source: Path
    merger: Merger
    config: Any
    tokenizer: Any
    dtype: torch.dtype | None


def prepare(weights: Weights, settings: Settings, *, held: bool, dtype: torch.dtype | None) -> Job:
    """Read everything but the base's weights, and decide what becomes of each. Raises ConfigError."""
    source = base_folder(settings)
    files = WeightFiles(source)
    config, base = describe(settings, source, files)
    adapter, tensors = _adapter(weights.folder)
    plan = plan_merge(tensors, base, held=held)
    device = choose_device(settings.device, Place(0, 1, 0, 1))
    merger = Merger(plan, base, files, tensors, adapter, settings, device, held)
    place = tokenizer_folder(settings, weights.folder)
    tokenizer = load_tokenizer(replace(settings, model_name_or_path=place))
    return Job(weights, settings, source, merger, config, tokenizer, dtype)


def build(job: Job, folder: Path, *, max_shard_size: str, on_progress: OnProgress) -> None:
    """Write the merged model into the folder. Raises ConfigError, and OSError."""
    merger, text = job.merger, job.config.get_text_config()
    made: dict[str, torch.Tensor | None] = dict.fromkeys(merger.plan.deeds)
    embedding, head = f"{merger.base.embedding}.weight", f"{merger.base.head}.weight"
    if merger.plan.unties:
        made |= {name: merger.make(name) for name in (embedding, head)}
        if _same(made[embedding], made[head]):
            del made[head]
        else:
            job.config.tie_word_embeddings = text.tie_word_embeddings = False
    rows = {name: merger.look(name)[0][0] for name in (embedding, head) if name in made}
    if len(set(rows.values())) > 1:
        told = ", ".join(f"{name} {count}" for name, count in rows.items())
        raise ConfigError(f"embedding and head would have rows for different numbers of tokens ({told})")
    text.vocab_size = rows[embedding]
    if job.dtype is not None:
        job.config.dtype = job.dtype
    write_weights(folder, merger, made, dtype=job.dtype, max_shard_size=max_shard_size, on_progress=on_progress)
    write_rest(folder, job.source, job.config, job.tokenizer)


def compare(job: Job, folder: Path, texts: Sequence[str]) -> Difference:
    """How far the model in the folder is from the adapter on its base, on the device of the job. Raises ConfigError."""
    settings, device = job.settings, job.merger.device
    trained = load_trained(settings, device, job.weights.folder)
    before = logits_of(trained, job.tokenizer, texts, autocast=autocast_of(settings))
    # Two models at once would take more than either.
    del trained
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    load: Any = AutoModelForCausalLM.from_pretrained
    try:
        merged = load(
            folder,
            dtype="auto",
            device_map="auto" if device.type == "cuda" else {"": device},
            trust_remote_code=settings.trust_remote_code,
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as err:
        raise ConfigError(f"the merged model cannot be loaded again: {err}") from err
    return difference(before, logits_of(merged.eval(), job.tokenizer, texts))


def _same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    return one is not None and other is not None and torch.equal(one, other)


def _adapter(folder: Path) -> tuple[LoraConfig, dict[str, torch.Tensor]]:
    try:
        demand_mergeable(json.loads((folder / ADAPTER_CONFIG_FILE).read_text(encoding="utf-8")))
        config = PeftConfig.from_pretrained(str(folder))
        tensors = load_file(folder / ADAPTER_FILE)
    except (OSError, ValueError, TypeError, KeyError, SafetensorError) as err:
        raise ConfigError(f"the adapter in {folder} cannot be read: {err}") from err
    if not tensors:
        raise ConfigError(f"{folder / ADAPTER_FILE} holds no weights: the adapter was saved empty")
    return config, tensors
