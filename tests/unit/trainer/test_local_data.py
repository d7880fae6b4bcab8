import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clockgate_trainer.data.formats import COLUMNS, Pair
from clockgate_trainer.data.local import SUFFIXES, examples, file_rows
from clockgate_trainer.data.record import Fault, Kind, Record
from clockgate_trainer.errors import ConfigError, ExitCode
from hypothesis import given
from hypothesis import strategies as st

ROWS = [{"input": "a", "output": "é"}, {"input": "b, b", "output": "d"}]


def write(folder: Path, suffix: str) -> Path:
    path = folder / f"rows{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif suffix == ".json":
        path.write_text(json.dumps(ROWS, indent=1), encoding="utf-8")
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    else:
        mark = "\t" if suffix == ".tsv" else ","
        body = "".join(f'"{row["input"]}"{mark}{row["output"]}\n' for row in ROWS)
        path.write_text(f"input{mark}output\n{body}", encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_kind_of_file_gives_the_same_examples(tmp_path: Path, suffix: str) -> None:
    found = list(examples(file_rows(write(tmp_path, suffix)), "input-output"))
    assert [(pair.prompt, pair.answer) for pair in found if isinstance(pair, Pair)] == [("a", "é"), ("b, b", "d")]


def test_json_file_may_hold_one_object_a_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(write(tmp_path, ".jsonl").read_bytes())
    assert [item.line for item in file_rows(path)] == [1, 2]


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".tsv", ".parquet"])
def test_empty_file_is_a_fault(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows{suffix}"
    path.write_bytes(b"")
    assert [item.kind for item in file_rows(path) if isinstance(item, Fault)] == [Kind.EMPTY_FILE]


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.jsonl", b"\n\n"), ("a.json", b"[ ]"), ("a.csv", b"input,output\n"), ("a.jsonl", b"\xef\xbb\xbf")],
)
def test_file_without_rows_is_a_fault(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert [item.kind for item in file_rows(tmp_path / name) if isinstance(item, Fault)] == [Kind.NO_ROWS]


def test_missing_file_folder_and_other_kinds_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl.gz").write_bytes(b"")
    for name, said in (("none.jsonl", "no such file"), ("", "is not a file"), ("rows.jsonl.gz", "unpack it first")):
        with pytest.raises(ConfigError, match=said) as caught:
            list(file_rows(tmp_path / name))
        assert caught.value.exit_code is ExitCode.CONFIG


def test_rows_behind_the_limit_are_not_read() -> None:
    def rows() -> object:
        yield Record(1, ROWS[0])
        yield Record(2, ROWS[1])
        raise AssertionError("read too far")

    assert len(list(examples(rows(), "input-output", 2))) == 2  # type: ignore[arg-type]


def test_empty_answer_and_word_for_a_missing_value_are_doubted_and_kept() -> None:
    rows = [Record(1, {"input": "a", "output": " "}), Record(2, {"input": "a", "output": "None"})]
    found = list(examples(iter(rows), "input-output"))
    assert [item.kind for item in found if isinstance(item, Fault)] == [Kind.EMPTY_ANSWER, Kind.ANSWER_IS_NULL_WORD]
    assert not any(item.refuses for item in found if isinstance(item, Fault))
    assert len([item for item in found if isinstance(item, Pair)]) == 2


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text(), max_size=2)
names = sorted({name for wanted in COLUMNS.values() for name in (*wanted.needed, *wanted.optional)})


@given(st.dictionaries(st.sampled_from(names), values), st.sampled_from(sorted(set(COLUMNS) - {"chat", "chip2"})))
def test_only_text_is_ever_trained_on(row: dict[str, object], format_name: str) -> None:
    wanted = COLUMNS[format_name]
    present = [row[name] for name in (*wanted.needed, *wanted.optional) if name in row]
    good = all(name in row for name in wanted.needed) and all(isinstance(value, str) for value in present)
    found = list(examples(iter([Record(1, row)]), format_name))
    refused = [item for item in found if isinstance(item, Fault) and item.refuses]
    assert bool(refused) != good
    assert bool([item for item in found if isinstance(item, Pair)]) == good
