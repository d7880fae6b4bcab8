"""One data set by its name: a local file, a known set or a hub id, with its format, its rows and what identifies it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from clockgate_trainer.data.cache import content_key
from clockgate_trainer.data.formats import DEFAULT_FORMAT, format_with
from clockgate_trainer.data.hub_sets import NAMED, hub_content_key, hub_rows, hub_set, load_hub_set, load_hub_split
from clockgate_trainer.data.local import check_file, file_rows
from clockgate_trainer.data.mixture import Share, read_shares
from clockgate_trainer.data.record import Fault, Record
from clockgate_trainer.errors import ConfigError


@dataclass(frozen=True)
class Source:
    """A data set that is there. `rows` reads it from its start, each time it is called."""

    name: str
    format: str
    content: str
    rows: Callable[[], Iterator[Record | Fault]]
    note: str | None = None


def open_shares(
    dataset: str, format_name: str | None, *, cache_dir: Path | None, token: bool | None, flag: str = "--dataset"
) -> list[tuple[Share, Source]]:
    """The sets that the value `dataset` of `flag` names. Raises ConfigError when one cannot be found or loaded.

    A file of exactly that name is one set, whatever is in the name. `format_name` counts for all but known sets beside
    others: those have formats of their own.
    """
    shares = (Share(dataset),) if Path(dataset).is_file() else read_shares(dataset)
    formats = [None if len(shares) > 1 and share.name in NAMED else format_name for share in shares]
    return [
        (share, open_source(share.name, wanted, cache_dir=cache_dir, token=token, flag=flag))
        for share, wanted in zip(shares, formats, strict=True)
    ]


def open_source(
    name: str, format_name: str | None, *, cache_dir: Path | None, token: bool | None, flag: str = "--dataset"
) -> Source:
    """The data set `name`, which `flag` gave. Raises ConfigError when it cannot be found or loaded."""
    path = Path(name)
    wanted = None if path.exists() else hub_set(name)
    if wanted is not None:
        loaded = load_hub_set(wanted, cache_dir=cache_dir, token=token)
        chosen = format_name or wanted.format or DEFAULT_FORMAT
        return Source(name, chosen, hub_content_key(loaded), lambda: hub_rows(loaded))
    try:
        check_file(path)
        content = content_key(path)
    except ConfigError as err:
        raise ConfigError(f"{flag} {err}; or one of {', '.join(NAMED)}, or a hub id owner/name") from err
    except OSError as err:
        raise ConfigError(f"{path} cannot be read: {err.strerror or err}. Give a readable file to {flag}") from err
    note = _unset(path) if format_name is None else None
    return Source(name, format_name or DEFAULT_FORMAT, content, lambda: file_rows(path), note)


def open_eval_split(name: str, format_name: str | None, *, cache_dir: Path | None, token: bool | None) -> Source | None:
    """The split `eval` of the hub set `name`, for which qlora.py looks too; None when it has none, or is no hub set.

    Raises ConfigError when the set cannot be loaded.
    """
    wanted = None if Path(name).exists() else hub_set(name)
    loaded = None if wanted is None else load_hub_split(wanted, "eval", cache_dir=cache_dir, token=token)
    if wanted is None or loaded is None:
        return None
    chosen = format_name or wanted.format or DEFAULT_FORMAT
    return Source(f"{name} (split eval)", chosen, hub_content_key(loaded), lambda: hub_rows(loaded))


def guess_format(path: Path) -> str | None:
    """The format that fits the columns of the first good row of a file; None when none does."""
    first = next((found for found in file_rows(path) if isinstance(found, Record)), None)
    return None if first is None else format_with(frozenset(first.row))


def _unset(path: Path) -> str:
    text = f"{path}: --dataset_format is not given: rows are read as {DEFAULT_FORMAT} (columns input, output)"
    if guess_format(path) != "alpaca":
        return text
    return f"{text}, so its column instruction is not read; for an Alpaca file give --dataset_format alpaca"
