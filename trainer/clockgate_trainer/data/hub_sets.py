"""Data sets of the hub under the names that qlora.py knows them by, and any other by its id `owner/name`.

Loaded by the library `datasets`, which is imported only when such a set is asked for.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clockgate_trainer.data.record import Fault, Kind, Record
from clockgate_trainer.errors import ConfigError

_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class HubSet:
    """Where a set lies: its hub id, its data format (None: by --dataset_format) and what to load of it."""

    hub_id: str
    format: str | None = None
    data_files: str | None = None
    revision: str | None = None


# self-instruct is a loading script on the hub, which `datasets` no longer runs: its automatic parquet copy is read.
NAMED: Mapping[str, HubSet] = {
    "alpaca": HubSet("tatsu-lab/alpaca", "alpaca"),
    "alpaca-clean": HubSet("yahma/alpaca-cleaned", "alpaca-clean"),
    "chip2": HubSet("laion/OIG", "chip2", data_files="unified_chip2.jsonl"),
    "self-instruct": HubSet(
        "yizhongw/self_instruct",
        "self-instruct",
        data_files="self_instruct/train/*.parquet",
        revision="refs/convert/parquet",
    ),
    "hh-rlhf": HubSet("Anthropic/hh-rlhf", "hh-rlhf"),
    "longform": HubSet("akoksal/LongForm", "longform"),
    "oasst1": HubSet("timdettmers/openassistant-guanaco", "oasst1"),
}
_NOT_RELEASED = ("vicuna",)


def hub_set(name: str) -> HubSet | None:
    """The set of this name or id; None when it is neither. Raises ConfigError for one that was never released."""
    if name in _NOT_RELEASED:
        raise ConfigError(f"--dataset {name}: the {name} data was not released; give a file or another set")
    if name in NAMED:
        return NAMED[name]
    return HubSet(name) if _ID.fullmatch(name) and not Path(name).suffix else None


def load_hub_set(wanted: HubSet, *, cache_dir: Path | None, token: bool | None) -> Any:
    """The training split, as a `datasets.Dataset`. Raises ConfigError when it cannot be had."""
    return _load(wanted, "train", cache_dir=cache_dir, token=token)


def load_hub_split(wanted: HubSet, split: str, *, cache_dir: Path | None, token: bool | None) -> Any | None:
    """The split of this name; None when the set has none, which one of a single file never has.

    Raises ConfigError when the set cannot be had.
    """
    if wanted.data_files is not None:
        return None
    return _load(wanted, None, cache_dir=cache_dir, token=token).get(split)


def _load(wanted: HubSet, split: str | None, *, cache_dir: Path | None, token: bool | None) -> Any:
    """One split, or all by their names."""
    try:
        # Heavy, and wanted for hub sets alone.
        import datasets  # noqa: PLC0415
        from datasets.exceptions import DatasetsError  # noqa: PLC0415
    except ImportError as err:
        raise ConfigError(
            f"the data set {wanted.hub_id} needs the library datasets: pip install 'clockgate[hub]', or "
            "give a local file"
        ) from err
    try:
        return datasets.load_dataset(
            wanted.hub_id,
            data_files=wanted.data_files,
            revision=wanted.revision,
            split=split,
            cache_dir=None if cache_dir is None else str(cache_dir),
            token=token,
        )
    except (DatasetsError, OSError, ValueError, RuntimeError) as err:
        reason = " ".join(str(err).split())[:300]
        raise ConfigError(
            f"the data set {wanted.hub_id} cannot be loaded: {reason}. Look at the network and --cache_dir, or give a "
            "local file"
        ) from err


def hub_rows(dataset: Any) -> Iterator[Record | Fault]:
    """The rows of a loaded set, numbered from 1."""
    number = 0
    for number, row in enumerate(dataset, start=1):
        yield Record(number, row)
    if number == 0:
        yield Fault(None, Kind.NO_ROWS, "the data set has no rows")


def hub_content_key(dataset: Any) -> str:
    """A SHA-256 of all rows, which tells one version of a set from another."""
    digest = hashlib.sha256()
    for row in dataset:
        digest.update(json.dumps(row, sort_keys=True, default=str).encode())
    return digest.hexdigest()
