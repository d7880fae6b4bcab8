"""The parts of a QLoRA run: models and tokenizers of transformers, adapters of peft, optimizers of bitsandbytes."""

from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from clockgate_trainer.data.tokenizer import load_tokenizer
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.generation.answer import Speaker
from clockgate_trainer.generation.decode import Decoder, prepare
from clockgate_trainer.planner.inventory import Inventory, read_config
from clockgate_trainer.planner.relief import relief
from clockgate_trainer.train.adapter import load_adapter
from clockgate_trainer.train.attention import use_plain
from clockgate_trainer.train.corpus import load_corpus
from clockgate_trainer.train.model import build_model, check_model
from clockgate_trainer.train.optim import make_optimizer, make_scheduler
from clockgate_trainer.train.parts import Corpus, Parts, Tensors, advise_plainly, save_adapter
from clockgate_trainer.train.precision import compute_dtype
from clockgate_trainer.train.trackers import make_trackers
from clockgate_trainer.train.whole import save_whole


def _read(settings: Settings) -> Corpus:
    corpus = load_corpus(settings)
    check_model(settings, corpus.data)
    return corpus


def _save(settings: Settings, model: Any, folder: Path, tensors: Tensors | None) -> None:
    write = save_whole if settings.full_finetune else save_adapter
    write(settings, model, folder, tensors)


def _advise(settings: Settings, device: torch.device) -> str:
    try:
        shape = Inventory(read_config(settings)[0]).shape()
    except ConfigError:
        # A kind of model that plan does not know can still be short of memory.
        return advise_plainly(settings, device)
    total = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None
    return relief(settings, shape, total)


def _make_speaker(settings: Settings, model: Any) -> Speaker:
    # Rows that are asked are not packed.
    use_plain(model)
    prepare(model)
    dtype = compute_dtype(settings)
    autocast = None if dtype is torch.float32 else dtype
    return Decoder(model, load_tokenizer(settings), settings, seed=settings.seed, autocast=autocast)


QLORA = Parts(
    read=_read,
    build_model=build_model,
    load_adapter=load_adapter,
    make_optimizer=make_optimizer,
    make_scheduler=make_scheduler,
    quieten=transformers_logging.disable_progress_bar,
    save=_save,
    advise=_advise,
    make_speaker=_make_speaker,
    make_sinks=make_trackers,
)
