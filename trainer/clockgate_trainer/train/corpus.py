"""The training data of a run: file -> text pairs -> tokens, with the model's own tokenizer.

Everything that can be wrong with data is found here, before any weights load.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from clockgate_trainer.data.formats import DEFAULT_FORMAT, Pair
from clockgate_trainer.data.jsonl import read_pairs
from clockgate_trainer.data.tokens import Encode, Lengths, Marks, TokenData, tokenize
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.train.hub import hub_arguments


@dataclass(frozen=True)
class Corpus:
    """Tokenized data, the id to pad with, and what a person should know about the data, one sentence each."""

    data: TokenData
    pad_id: int
    notes: tuple[str, ...]


def load_corpus(settings: Settings) -> Corpus:
    """Read and tokenize. Raises ConfigError that names file and line, or the tokenizer."""
    pairs = read_pairs(Path(settings.dataset), settings.dataset_format or DEFAULT_FORMAT, settings.max_train_samples)
    tokenizer = _load_tokenizer(settings)
    marks = _marks(tokenizer, settings.model_name_or_path)
    lengths = Lengths(settings.source_max_len, settings.target_max_len, settings.train_on_source)
    data = tokenize(pairs, _encoder(tokenizer), marks, lengths)
    return Corpus(data, marks.pad, _notes(settings, pairs, data, marks))


def _load_tokenizer(settings: Settings) -> Any:
    try:
        return AutoTokenizer.from_pretrained(settings.model_name_or_path, **hub_arguments(settings))
    except (OSError, ValueError, KeyError, TypeError, ImportError) as err:
        raise ConfigError(
            f"the tokenizer of {settings.model_name_or_path} cannot be loaded: {err}. "
            "Give --model_name_or_path a folder with tokenizer files, or a hub id that this machine can reach"
        ) from err


def _encoder(tokenizer: Any) -> Encode:
    def encode(texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    return encode


def _marks(tokenizer: Any, name: str) -> Marks:
    if tokenizer.eos_token_id is None:
        raise ConfigError(f"the tokenizer of {name} has no end mark (eos_token): a model without one never stops")
    pad = tokenizer.pad_token_id
    return Marks(tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.eos_token_id if pad is None else pad)


def _notes(settings: Settings, pairs: Sequence[Pair], data: TokenData, marks: Marks) -> tuple[str, ...]:
    notes = []
    empty = [pair.line for pair in pairs if not pair.answer.strip()]
    if empty:
        notes.append(
            f"{len(empty)} rows have an empty answer (the first is {settings.dataset}:{empty[0]}): "
            "they teach the end mark alone"
        )
    if data.cut_prompts:
        notes.append(f"{data.cut_prompts} prompts are cut to --source_max_len {settings.source_max_len} tokens")
    if data.cut_answers:
        notes.append(f"{data.cut_answers} answers are cut to --target_max_len {settings.target_max_len} tokens")
    if marks.begin is None:
        notes.append("the tokenizer has no begin mark (bos_token): prompts start without one")
    return tuple(notes)
