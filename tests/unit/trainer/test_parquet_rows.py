import builtins
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clockgate_trainer.data.parquet_rows import parquet_rows
from clockgate_trainer.data.record import Fault, Kind, Record
from clockgate_trainer.errors import ConfigError
from hypothesis import given, settings
from hypothesis import strategies as st


def write(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_rows_are_numbered_and_keep_their_types(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", input=["a", None], output=["b", "c"], score=[1, 2])
    assert list(parquet_rows(path)) == [
        Record(1, {"input": "a", "output": "b", "score": 1}),
        Record(2, {"input": None, "output": "c", "score": 2}),
    ]


def test_chat_messages_come_out_as_lists_of_objects(tmp_path: Path) -> None:
    messages = [[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]]
    (row,) = parquet_rows(write(tmp_path / "a.parquet", messages=messages))
    assert isinstance(row, Record)
    assert row.row["messages"] == messages[0]


def test_text_that_is_not_utf8_is_told_by_row_and_the_rest_is_read(tmp_path: Path) -> None:
    raw = pa.array([b"good", b"b\xc0d", b"good"], pa.binary())
    column = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    found = list(parquet_rows(write(tmp_path / "a.parquet", input=column)))
    assert isinstance(found[1], Fault)
    assert (found[1].line, found[1].kind) == (2, Kind.NOT_UTF8)
    assert "0xc0" in found[1].text
    assert isinstance(found[2], Record)


def test_broken_file_is_told_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", input=["a"] * 10)
    path.write_bytes(path.read_bytes()[:-20])
    (fault,) = parquet_rows(path)
    assert isinstance(fault, Fault)
    assert fault.kind is Kind.UNREADABLE


def test_missing_library_is_told_with_the_extra_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_pyarrow(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    with pytest.raises(ConfigError, match=r"clockgate\[hub\]"):
        list(parquet_rows(tmp_path / "a.parquet"))


@settings(max_examples=50)
@given(content=st.binary(max_size=300), framed=st.booleans())
def test_any_bytes_are_rows_or_faults(tmp_path_factory: pytest.TempPathFactory, content: bytes, framed: bool) -> None:
    path = tmp_path_factory.mktemp("parquet", numbered=True) / "a.parquet"
    path.write_bytes(b"PAR1" + content + b"PAR1" if framed else content)
    for found in parquet_rows(path):
        assert isinstance(found, Record | Fault)
