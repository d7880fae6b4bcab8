"""Questions by the name of their set: a local file, qlora.py's files in the working folder, or MMLU of the hub."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from clockgate_trainer.data.hub_sets import HubSet, hub_rows, load_hub_set
from clockgate_trainer.data.local import file_rows
from clockgate_trainer.data.record import BadRowError, Fault, Record
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.evaluation.mmlu_prompts import Item, item_of, question_with
from clockgate_trainer.evaluation.questions import Question, question_of
from clockgate_trainer.flags.evaluation import MMLU_NAMES, mmlu_file
from clockgate_trainer.flags.table import Settings

HUB_ID = "cais/mmlu"
_HUB_SPLITS: Mapping[str, str] = {"eval": "validation", "test": "test"}
_SHOTS = 5
_TOLD_FAULTS = 5
_Made = TypeVar("_Made")


def read_questions(settings: Settings, hub_id: str = HUB_ID) -> list[Question]:
    """The questions of --mmlu_dataset, at most --max_mmlu_samples. Raises ConfigError that names file and line."""
    name, limit = settings.mmlu_dataset, settings.max_mmlu_samples
    path = mmlu_file(name, settings.mmlu_split) if name in MMLU_NAMES else Path(name)
    if path.exists() or name not in MMLU_NAMES:
        try:
            return _good(file_rows(path), lambda found: question_of(found.row, found.line), str(path))[:limit]
        except ConfigError as err:
            raise ConfigError(f"--mmlu_dataset {err}") from err
    try:
        return _from_hub(settings, hub_id, shots=0 if name == "mmlu-zs" else _SHOTS)[:limit]
    except ConfigError as err:
        raise ConfigError(
            f"--mmlu_dataset {name}: {path} is not in the working folder (qlora.py's repository has it), and {err}"
        ) from err


def _from_hub(settings: Settings, hub_id: str, *, shots: int) -> list[Question]:
    items = _hub_items(settings, hub_id, _HUB_SPLITS[settings.mmlu_split])
    examples: dict[str, list[Item]] = defaultdict(list)
    if shots:
        for item in _hub_items(settings, hub_id, "dev"):
            examples[item.subject].append(item)
    return [question_with(item, examples[item.subject][:shots]) for item in items]


def _hub_items(settings: Settings, hub_id: str, split: str) -> list[Item]:
    wanted = HubSet(hub_id, data_files=f"all/{split}-*.parquet")
    loaded = load_hub_set(wanted, cache_dir=settings.cache_dir, token=settings.use_auth_token or None)
    return _good(hub_rows(loaded), lambda found: item_of(found.row), f"{hub_id} {split}")


def _good(rows: Iterator[Record | Fault], make: Callable[[Record], _Made], name: str) -> list[_Made]:
    """What all rows make. Raises ConfigError with the first faults of those that make nothing."""
    made: list[_Made] = []
    faults: list[Fault] = []
    for found in rows:
        try:
            if isinstance(found, Fault):
                faults.append(found)
            else:
                made.append(make(found))
        except BadRowError as bad:
            faults.append(bad.fault(found.line or 0))
    if faults:
        told = "\n  ".join(fault.at(name) for fault in faults[:_TOLD_FAULTS])
        raise ConfigError(f"{name} has {len(faults)} bad rows, nothing was evaluated. Repair or remove:\n  {told}")
    return made
