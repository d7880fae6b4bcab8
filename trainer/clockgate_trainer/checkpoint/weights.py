"""Which trained weights a path means, for programs that use them: a checkpoint, a run folder, an adapter, a model.

A checkpoint is read back and compared with its manifest first. Changes nothing on disk.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from clockgate_trainer.checkpoint.best import read_best
from clockgate_trainer.checkpoint.fields import FieldError, Fields, parse_object
from clockgate_trainer.checkpoint.files import HOST, Files
from clockgate_trainer.checkpoint.layout import BEST_FILE, MANIFEST_FILE, TRAINER_STATE_FILE, step_in_name
from clockgate_trainer.checkpoint.resume import newest_verified
from clockgate_trainer.checkpoint.verify import verify
from clockgate_trainer.errors import ConfigError

ADAPTER_CONFIG_FILE = "adapter_config.json"
CONFIG_FILE = "config.json"
# What a run remembers of how it held its base, by the names of its flags.
_OF_THE_BASE = ("model_name_or_path", "bits", "quant_type", "double_quant", "bf16", "fp16")


@dataclass(frozen=True)
class Weights:
    """Weights in `folder`: those of an adapter, or of a whole model.

    `words` are the flags that load the base as it was in training, as far as the folder tells. `note` is a sentence on
    how the folder was chosen, empty when it was named.
    """

    folder: Path
    is_adapter: bool
    words: tuple[str, ...] = ()
    note: str = ""
    passed_over: tuple[Path, ...] = field(default=())

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of how the folder was chosen, one sentence each."""
        told = (self.note,) if self.note else ()
        return (*told, *(f"{path} is passed over: it is not as it was written" for path in self.passed_over))


def leading_path(words: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The path that a command line begins with, None when it begins with a flag, and the rest.

    Only there: behind a flag that argparse does not know, a path would be that flag's value as well.
    """
    if words and not words[0].startswith("-"):
        return Path(words[0]), list(words[1:])
    return None, list(words)


def find_weights(path: Path, *, best: bool = False, files: Files = HOST) -> Weights:
    """What `path` means; of a run folder the newest verified checkpoint, or the one that best.json names.

    Raises ConfigError when a checkpoint is not as it was written, and when there are no weights.
    """
    if not path.is_dir():
        raise ConfigError(f"{path}: no such folder; wanted a checkpoint, a run folder, an adapter or a model")
    if (path / MANIFEST_FILE).exists() or step_in_name(path) is not None:
        if best:
            raise ConfigError(f"--best wants a run folder, and {path} is one checkpoint: leave --best out")
        return _checkpoint(path, files)
    if _has_checkpoints(path, files) or best:
        return _of_run(path, files, best=best)
    if (path / ADAPTER_CONFIG_FILE).exists():
        return _adapter(path)
    if (path / CONFIG_FILE).exists():
        return Weights(path, is_adapter=False, words=_model_words(path))
    raise ConfigError(
        f"{path} holds no checkpoint, no {ADAPTER_CONFIG_FILE} and no {CONFIG_FILE}: wanted a checkpoint, a run "
        "folder, an adapter or a model"
    )


def _of_run(path: Path, files: Files, *, best: bool) -> Weights:
    if best:
        named = read_best(files, path)
        if named is None:
            raise ConfigError(f"{path / BEST_FILE} is not there or cannot be understood: leave --best out")
        found = _checkpoint(path / named.checkpoint, files)
        note = f"the best checkpoint by {named.metric} ({named.value:g}) is {found.folder}"
        return Weights(found.folder, found.is_adapter, found.words, note)
    newest = newest_verified(path, files)
    found = _checkpoint(newest.path, files, verified=True)
    note = f"the newest verified checkpoint is {found.folder}"
    return Weights(found.folder, found.is_adapter, found.words, note, tuple(one.path for one in newest.passed_over))


def _checkpoint(path: Path, files: Files, *, verified: bool = False) -> Weights:
    problems = () if verified else verify(path, files)
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise ConfigError(f"{path} is not as it was written; take another checkpoint of the run:\n{listed}")
    is_adapter = (path / ADAPTER_CONFIG_FILE).exists()
    if not is_adapter:
        return Weights(path, is_adapter=False, words=_model_words(path))
    return Weights(path, is_adapter=True, words=_recorded(path, files))


def _recorded(path: Path, files: Files) -> tuple[str, ...]:
    try:
        settings = Fields(parse_object(files.read(path / TRAINER_STATE_FILE))).plain("settings")
    except (OSError, FieldError) as error:
        raise ConfigError(f"{path / TRAINER_STATE_FILE} cannot be read ({error}); take another checkpoint") from error
    return tuple(word for name in _OF_THE_BASE if name in settings for word in (f"--{name}", _word(settings[name])))


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _adapter(path: Path) -> Weights:
    """An adapter that peft wrote: it names its base, and not how that was held."""
    base = _read_json(path / ADAPTER_CONFIG_FILE).get("base_model_name_or_path")
    words = ("--model_name_or_path", str(base)) if base else ()
    return Weights(path, is_adapter=True, words=words)


def _model_words(path: Path) -> tuple[str, ...]:
    """A whole model is used as it is on disk: not quantised, and in its own type where that is a narrow one."""
    config = _read_json(path / CONFIG_FILE)
    own = str(config.get("dtype") or config.get("torch_dtype"))
    narrow = {"bfloat16": ("--bf16", "true"), "float16": ("--fp16", "true")}.get(own, ())
    return ("--model_name_or_path", str(path), "--bits", "16" if narrow else "32", *narrow)


def _read_json(path: Path) -> Mapping[str, object]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        raise ConfigError(f"{path} cannot be read: {err}") from err
    if not isinstance(found, dict):
        raise ConfigError(f"{path} holds no JSON object")
    return found


def _has_checkpoints(path: Path, files: Files) -> bool:
    try:
        return any(step_in_name(folder) is not None for folder in files.list_folders(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
