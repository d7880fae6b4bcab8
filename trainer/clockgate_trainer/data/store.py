"""Token rows in memory-mapped files: written once, then read by every rank without a copy in its memory.

A store is a folder: `ids.i32` and `learned.u8` hold the rows end to end, `ends.i64` where each ends, `labels.i64` how
many of its tokens are learned, `meta.json` the rest with the SHA-256 of each file and of itself. The folder gets its
name when it is whole. It is not forced to disk: what a crash tears is found by its hash, and made again.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, overload

import numpy as np
from numpy.typing import NDArray

from clockgate_trainer.data.record import Fault, Kind
from clockgate_trainer.data.tokens import Coded, TokenData, TokenRow

VERSION = 1
MOST_FAULTS = 20
_META = "meta.json"
_FILES: Mapping[str, Any] = {"ids.i32": np.int32, "learned.u8": np.bool_, "ends.i64": np.int64, "labels.i64": np.int64}


class DamagedError(Exception):
    """A store is not as it was written; the message says what differs."""


class BadDataError(Exception):
    """The data has faults that refuse it; no store was made."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(f"{len(faults)} faults")
        self.faults = tuple(faults)


@dataclass(frozen=True)
class Summary:
    """What a person should know of a store: rows, tokens, how many were cut, and the first warnings of all of them."""

    rows: int
    tokens: int
    largest_id: int
    cut_prompts: int
    cut_answers: int
    warnings: tuple[Fault, ...]
    warning_count: int


@dataclass(frozen=True)
class Store:
    """An open store. `digest` identifies its rows to the last token."""

    summary: Summary
    digest: str
    ids: NDArray[np.int32]
    learned: NDArray[np.bool_]
    ends: NDArray[np.int64]
    labels: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each row."""
        return np.diff(self.ends, prepend=np.int64(0))

    def row(self, place: int) -> TokenRow:
        """One row, as a view into the file."""
        start, end = int(self.ends[place - 1]) if place else 0, int(self.ends[place])
        return TokenRow(self.ids[start:end], self.learned[start:end])


def write_store(folder: Path, rows: Iterable[Coded | Fault]) -> None:
    """Write all rows, and rename the folder to `folder`, which must not exist.

    Raises BadDataError with up to 20 faults when any refuses the data or there are no rows, and OSError; either way
    nothing is left behind.
    """
    draft = folder.with_name(f".{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        body = _write(draft, rows)
        text = json.dumps({"body": body, "sha256": _digest_of(body)}, indent=1)
        (draft / _META).write_text(text, encoding="utf-8")
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def open_store(folder: Path) -> Store:
    """The store in `folder`, every byte of it checked. Raises DamagedError, and OSError when it is not there."""
    try:
        meta = json.loads((folder / _META).read_bytes())
        body = meta["body"]
        if meta["sha256"] != _digest_of(body) or body["version"] != VERSION:
            raise DamagedError(f"{_META} is not as it was written")
        summary = _summary(body)
        wanted = {name: body["sha256"][name] for name in _FILES}
    except (ValueError, KeyError, TypeError, RecursionError) as err:
        raise DamagedError(f"{_META} cannot be read: {err}") from err
    arrays = {}
    for name, kind in _FILES.items():
        path = folder / name
        if _hash_file(path) != wanted[name]:
            raise DamagedError(f"{name} is not as it was written")
        arrays[name] = np.memmap(path, dtype=kind, mode="r")
    digest = _digest_of(wanted)
    return Store(summary, digest, *arrays.values())


def data_of(parts: Sequence[tuple[Store, Sequence[int]]]) -> TokenData:
    """The data that consists of these rows of these stores, in this order."""
    which = np.concatenate([np.full(len(rows), place, np.int32) for place, (_, rows) in enumerate(parts)])
    places = np.concatenate([np.asarray(rows, np.int64) for _, rows in parts])
    digest = hashlib.sha256("".join(store.digest for store, _ in parts).encode())
    digest.update(which.tobytes())
    digest.update(places.tobytes())
    stores = tuple(store for store, _ in parts)
    return TokenData(
        _Rows(stores, which, places),
        np.concatenate([store.lengths[np.asarray(rows, np.int64)] for store, rows in parts]),
        np.concatenate([np.asarray(store.labels)[np.asarray(rows, np.int64)] for store, rows in parts]),
        max(store.summary.largest_id for store in stores),
        digest.hexdigest(),
    )


class _Rows(Sequence[TokenRow]):
    """Rows of several stores by one number."""

    def __init__(self, stores: Sequence[Store], which: NDArray[np.int32], places: NDArray[np.int64]) -> None:
        self._stores = stores
        self._which = which
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> TokenRow: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[TokenRow]: ...
    def __getitem__(self, place: int | slice) -> TokenRow | Sequence[TokenRow]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        return self._stores[int(self._which[place])].row(int(self._places[place]))


def _write(folder: Path, rows: Iterable[Coded | Fault]) -> dict[str, Any]:
    ends: list[int] = []
    labels: list[int] = []
    faults: list[Fault] = []
    warnings: list[Fault] = []
    warning_count = cut_prompts = cut_answers = largest = 0
    with (folder / "ids.i32").open("wb") as ids, (folder / "learned.u8").open("wb") as learned:
        for item in rows:
            if isinstance(item, Fault):
                warning_count += not item.refuses
                kept = faults if item.refuses else warnings
                if len(kept) < MOST_FAULTS:
                    kept.append(item)
                if len(faults) == MOST_FAULTS:
                    break
            elif not faults:
                _append(ids, learned, item.row)
                ends.append((ends[-1] if ends else 0) + len(item.row.input_ids))
                labels.append(item.row.label_tokens)
                cut_prompts += item.cut_prompt
                cut_answers += item.cut_answer
                largest = max(largest, int(item.row.input_ids.max()))
    if not ends and not faults:
        faults.append(Fault(None, Kind.NO_ROWS, "the file has no rows"))
    if faults:
        raise BadDataError(faults)
    (folder / "ends.i64").write_bytes(np.array(ends, np.int64).tobytes())
    (folder / "labels.i64").write_bytes(np.array(labels, np.int64).tobytes())
    return {
        "version": VERSION,
        "rows": len(ends),
        "tokens": ends[-1],
        "largest_id": largest,
        "cut_prompts": cut_prompts,
        "cut_answers": cut_answers,
        "warnings": [[fault.line, fault.kind.value, fault.text] for fault in warnings],
        "warning_count": warning_count,
        "sha256": {name: _hash_file(folder / name) for name in _FILES},
    }


def _append(ids: BinaryIO, learned: BinaryIO, row: TokenRow) -> None:
    ids.write(row.input_ids.tobytes())
    learned.write(row.learned.tobytes())


def _summary(body: Mapping[str, Any]) -> Summary:
    return Summary(
        rows=int(body["rows"]),
        tokens=int(body["tokens"]),
        largest_id=int(body["largest_id"]),
        cut_prompts=int(body["cut_prompts"]),
        cut_answers=int(body["cut_answers"]),
        warnings=tuple(Fault(line, Kind(kind), text) for line, kind, text in body["warnings"]),
        warning_count=int(body["warning_count"]),
    )


def _digest_of(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
