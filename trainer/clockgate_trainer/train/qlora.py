"""The parts of a QLoRA run: models and tokenizers of transformers, adapters of peft, optimizers of bitsandbytes."""

from transformers.utils import logging as transformers_logging

from clockgate_trainer.flags.table import Settings
from clockgate_trainer.train.adapter import load_adapter
from clockgate_trainer.train.corpus import load_corpus
from clockgate_trainer.train.model import build_model, check_model
from clockgate_trainer.train.optim import make_optimizer, make_scheduler
from clockgate_trainer.train.parts import Corpus, Parts


def _read(settings: Settings) -> Corpus:
    corpus = load_corpus(settings)
    check_model(settings, corpus.data)
    return corpus


QLORA = Parts(
    read=_read,
    build_model=build_model,
    load_adapter=load_adapter,
    make_optimizer=make_optimizer,
    make_scheduler=make_scheduler,
    quieten=transformers_logging.disable_progress_bar,
)
