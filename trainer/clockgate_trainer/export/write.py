"""A plain model folder, written shard by shard under a hidden name and put in place by one rename."""

import json
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors import SafetensorError
from safetensors.torch import save_file

from clockgate_trainer.checkpoint.files import HOST
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.export.merge import Merger

_INDEX_FILE = "model.safetensors.index.json"
_ROOM_FOR_REST_BYTES = 64 << 20


def demand_free(target: Path) -> None:
    """Raise ConfigError unless `target` is not there, or an empty folder, with a name that all libraries can write."""
    try:
        str(target).encode()
    except UnicodeEncodeError as err:
        raise ConfigError(f"{str(target)!r} is no UTF-8: give another --output") from err
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{target} is there already and is not empty: nothing is written over. Give another --output")


@dataclass
class Stage:
    """A folder that nobody sees yet; `keep` decides whether it ever gets its name."""

    folder: Path
    keep: bool = True


@contextmanager
def staged(target: Path) -> Iterator[Stage]:
    """A hidden folder beside `target` that takes its name, on disk to the last byte, when the block ends well.

    Else, and when it is not to be kept, it is removed. Raises ConfigError when it cannot be made or `target` was taken
    meanwhile.
    """
    demand_free(target)
    stage = Stage(target.with_name(f".staging-{target.name}-{secrets.token_hex(4)}"))
    try:
        HOST.make_folder(stage.folder)
        yield stage
        if stage.keep:
            _put_in_place(stage.folder, target)
    except OSError as err:
        raise ConfigError(f"{target} cannot be written ({err.strerror or err}): give another --output") from err
    finally:
        if stage.folder.exists():
            HOST.remove_tree(stage.folder)


def _put_in_place(folder: Path, target: Path) -> None:
    for name in HOST.list_files(folder):
        HOST.sync_file(folder / name)
    HOST.sync_folder(folder)
    demand_free(target)
    HOST.rename(folder, target)
    HOST.sync_folder(target.parent)


def write_weights(
    folder: Path,
    merger: Merger,
    names: Mapping[str, torch.Tensor | None],
    *,
    dtype: torch.dtype | None,
    max_shard_size: str,
    on_progress: Callable[[int, int], None],
) -> None:
    """Write the merged weights into `folder`: never more than one shard of them is in memory.

    `names` are the weights to write, with those that are made already. `dtype`: that of all; None: each weight keeps
    the type that it has in the base. `on_progress(done, all)` counts weights. Raises ConfigError, and OSError.
    """
    planned = {name: _without_storage(merger, name, dtype) for name in names}
    try:
        shards = split_torch_state_dict_into_shards(planned, max_shard_size=max_shard_size)
    except ValueError as err:
        raise ConfigError(f"--max_shard_size is {max_shard_size!r}: {err}; wanted a size such as 5GB") from err
    _demand_room(folder, sum(tensor.nbytes for tensor in planned.values()))
    done = 0
    for file, inside in shards.filename_to_tensors.items():
        tensors = {}
        for name in inside:
            made = names[name]
            weight = merger.make(name) if made is None else made
            tensors[name] = weight.to(planned[name].dtype).contiguous()
            done += 1
            on_progress(done, len(planned))
        try:
            save_file(tensors, folder / file, metadata={"format": "pt"})
        except SafetensorError as err:
            raise ConfigError(f"{file} cannot be written: {err}. Make room, or give another --output") from err
    if shards.is_sharded:
        index = {"metadata": shards.metadata, "weight_map": shards.tensor_to_filename}
        (folder / _INDEX_FILE).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def write_rest(folder: Path, source: Path, config: Any, tokenizer: Any) -> None:
    """Configuration, tokenizer, and what the base has of generation settings and code of its own."""
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for path in [source / "generation_config.json", *sorted(source.glob("*.py"))]:
        if path.exists():
            shutil.copyfile(path, folder / path.name)


def _without_storage(merger: Merger, name: str, dtype: torch.dtype | None) -> torch.Tensor:
    shape, own = merger.look(name)
    chosen = dtype if dtype is not None and own.is_floating_point else own
    return torch.empty(shape, dtype=chosen, device="meta")


def _demand_room(folder: Path, wanted: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < wanted + _ROOM_FOR_REST_BYTES:
        raise ConfigError(
            f"the merged weights take {wanted / 1e9:.1f} GB and the disk of {folder.parent} has {free / 1e9:.1f} GB "
            "free: make room, or give --dtype bfloat16 or another --output"
        )
