"""Hub sets, loaded for real by `datasets` from local copies of the same layout."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clockgate_trainer.data.formats import COLUMNS, Pair
from clockgate_trainer.data.hub_sets import NAMED, HubSet, hub_content_key, hub_rows, hub_set, load_hub_set
from clockgate_trainer.data.local import examples
from clockgate_trainer.data.record import Fault, Kind
from clockgate_trainer.errors import ConfigError

ROWS = {
    "alpaca": [{"instruction": "i", "input": "", "output": "o"}],
    "chip2": [{"text": "<human>: p\n<bot>: o", "metadata": ""}],
    "self-instruct": [{"prompt": "p", "completion": "o"}],
    "hh-rlhf": [{"chosen": "o", "rejected": "x"}],
    "longform": [{"input": "p", "output": "o", "source": "s"}],
    "oasst1": [{"text": "o"}],
}


def lay(folder: Path, name: str, rows: list[dict[str, str]]) -> HubSet:
    """A local copy of a hub set, in the kind of files that the hub has."""
    wanted = NAMED[name]
    target = folder / (wanted.data_files or "data/train-00000.parquet").replace("*", "0000")
    target.parent.mkdir(parents=True)
    if target.suffix == ".jsonl":
        target.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        pq.write_table(pa.Table.from_pylist(rows), target)
    return replace(wanted, hub_id=str(folder), revision=None)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_named_set_is_loaded_and_read_by_its_format(tmp_path: Path, name: str) -> None:
    wanted = lay(tmp_path / "copy", name, ROWS[name] * 3)
    assert wanted.format is not None
    loaded = load_hub_set(wanted, cache_dir=tmp_path / "cache", token=None)
    found = list(examples(hub_rows(loaded), wanted.format))
    assert [pair.answer for pair in found if isinstance(pair, Pair)] == ["o"] * 3
    assert [pair.line for pair in found if isinstance(pair, Pair)] == [1, 2, 3]


def test_null_in_a_hub_set_is_a_fault_with_its_row(tmp_path: Path) -> None:
    rows = [{"text": "a"}, {"text": None}]
    wanted = lay(tmp_path / "copy", "oasst1", rows)  # type: ignore[arg-type]
    loaded = load_hub_set(wanted, cache_dir=tmp_path / "cache", token=None)
    (fault,) = (item for item in examples(hub_rows(loaded), "oasst1") if isinstance(item, Fault))
    assert (fault.line, fault.kind) == (2, Kind.NULL)


def test_content_key_changes_with_a_row(tmp_path: Path) -> None:
    keys = set()
    for number, answer in enumerate(("a", "b")):
        wanted = lay(tmp_path / f"copy{number}", "oasst1", [{"text": answer}])
        keys.add(hub_content_key(load_hub_set(wanted, cache_dir=tmp_path / "cache", token=None)))
    assert len(keys) == 2


def test_set_that_is_not_there_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a local file"):
        load_hub_set(HubSet(str(tmp_path / "none")), cache_dir=tmp_path, token=None)


def test_names_ids_and_files_are_told_apart() -> None:
    assert hub_set("alpaca") is NAMED["alpaca"]
    assert hub_set("owner/name") == HubSet("owner/name")
    assert hub_set("folder/rows.jsonl") is None
    assert hub_set("rows") is None
    with pytest.raises(ConfigError, match="was not released"):
        hub_set("vicuna")


def test_every_named_set_has_a_format_that_is_read() -> None:
    assert {wanted.format for wanted in NAMED.values()} <= set(COLUMNS)
