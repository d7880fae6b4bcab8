"""The tokenizer of a model, as the functions and numbers that the rest of this room asks for."""

import hashlib
import json
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoTokenizer

from clockgate_trainer.data.chat import chat_layout
from clockgate_trainer.data.tokens import Coder, Encode, Lengths, Marks
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.hub import hub_arguments


def load_tokenizer(settings: Settings) -> Any:
    """The tokenizer of --model_name_or_path, with the template of --chat_template. Raises ConfigError."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(settings.model_name_or_path, **hub_arguments(settings))
    except (OSError, ValueError, KeyError, TypeError, ImportError) as err:
        raise ConfigError(
            f"the tokenizer of {settings.model_name_or_path} cannot be loaded: {err}. "
            "Give --model_name_or_path a folder with tokenizer files, or a hub id that this machine can reach"
        ) from err
    if settings.chat_template is not None:
        tokenizer.chat_template = _read_template(settings.chat_template)
    return tokenizer


def make_coder(settings: Settings, tokenizer: Any, *, chats: bool) -> Coder:
    """How rows become tokens. Raises ConfigError when the tokenizer lacks an end mark or, for chats, a template."""
    name = settings.model_name_or_path
    lengths = Lengths(settings.source_max_len, settings.target_max_len, settings.train_on_source)
    lay_out = chat_layout(tokenizer, name) if chats else None
    return Coder(_encoder(tokenizer), _marks(tokenizer, name), lengths, lay_out)


def tokenizer_key(tokenizer: Any) -> str:
    """A SHA-256 that changes with anything about the tokenizer that could change a token."""
    core = getattr(tokenizer, "backend_tokenizer", None)
    whole = core.to_str() if core is not None else sorted(tokenizer.get_vocab().items())
    facts = [transformers.__version__, type(tokenizer).__name__, whole, tokenizer.special_tokens_map]
    facts.append(tokenizer.chat_template)
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def _read_template(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"--chat_template {path} cannot be read: {err}; wanted a Jinja template, UTF-8") from err


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
