"""What a kind of model brings to a run: data, weights, optimizer. How a run lives and ends is the same for all kinds.

Knows no model library, so that a run of something small starts in a moment.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clockgate_trainer.data.tokens import TokenData
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.evaluation.questions import Questions
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.generation.answer import Speaker
from clockgate_trainer.train.sinks import Sink


@dataclass(frozen=True)
class Unseen:
    """What is evaluated and not trained on: rows and multiple-choice questions, None without any."""

    pad_id: int
    held: TokenData | None = None
    questions: Questions | None = None


@dataclass(frozen=True)
class Corpus:
    """Tokenized data, the id to pad with, and what a person should know about the data, one sentence each.

    `held` and `questions` are what it is evaluated on, None without any.
    """

    data: TokenData
    pad_id: int
    notes: tuple[str, ...]
    held: TokenData | None = None
    questions: Questions | None = None

    @property
    def unseen(self) -> Unseen:
        """What it is evaluated on."""
        return Unseen(self.pad_id, self.held, self.questions)


Tensors = Mapping[str, torch.Tensor]


def save_adapter(settings: Settings, model: Any, folder: Path, tensors: Tensors | None) -> None:
    """Write the trained weights of a model that can do so itself, as peft's can; `tensors` are copies of them."""
    given = {} if tensors is None else {"state_dict": tensors}
    # The embedding is not trained here; asking peft to find that out makes it look for the base model on the hub.
    model.save_pretrained(folder, save_embedding_layers=False, **given)


def advise_plainly(settings: Settings, device: torch.device) -> str:
    """What to change when memory is short, without knowing the model."""
    return (
        "Lower --per_device_train_batch_size (and raise --gradient_accumulation_steps as much), --source_max_len or "
        "--target_max_len, or keep --gradient_checkpointing on; --fp16 would save nothing over --bf16"
    )


def no_sinks(settings: Settings) -> tuple[Sink, ...]:
    """Metrics are in the run folder."""
    return ()


def cannot_speak(settings: Settings, model: Any) -> Speaker:
    """Of a model that answers nothing. Raises ConfigError."""
    raise ConfigError(f"--do_predict: a {type(model).__name__} generates no text; leave --do_predict out")


@dataclass(frozen=True)
class Parts:
    """Functions that every rank calls at the same points of a run.

    `read` finds what is wrong with data and model before any weights load. `build_model` gives a module that takes
    `input_ids`, `attention_mask`, `use_cache` and, where rows are packed, `position_ids`, returns an object with
    `logits`; `save` writes its trained weights into a folder, or `tensors`, copies of them, in their place;
    `load_adapter` puts those of a checkpoint's folder back. `make_scheduler` is given the number of optimizer steps.
    `quieten` stops progress bars. `advise` says, in a sentence or more, what to change when memory is short.
    `make_speaker` makes a model that is trained no further answer; `make_sinks`, for rank 0 alone, gives what
    --report_to names. The first three and these two raise ConfigError.
    """

    read: Callable[[Settings], Corpus]
    build_model: Callable[[Settings, torch.device], Any]
    load_adapter: Callable[[Any, Path], None]
    make_optimizer: Callable[[Settings, Iterable[torch.nn.Parameter], torch.device], torch.optim.Optimizer]
    make_scheduler: Callable[[Settings, torch.optim.Optimizer, int], torch.optim.lr_scheduler.LRScheduler]
    quieten: Callable[[], None]
    save: Callable[[Settings, Any, Path, Tensors | None], None] = save_adapter
    advise: Callable[[Settings, torch.device], str] = advise_plainly
    make_speaker: Callable[[Settings, Any], Speaker] = cannot_speak
    make_sinks: Callable[[Settings], tuple[Sink, ...]] = no_sinks
